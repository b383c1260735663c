#!/bin/bash
#PBS -N {name}
#PBS -l select={hosts}:ncpus={ranks}:mpiprocs={ranks}  # if not gpus
#PBS -l select={hosts}:ncpus={ranks}:mpiprocs={ranks}:ngpus={gpus}
#PBS -l place=scatter  # if several_hosts
#PBS -l walltime={hours:02}:{minutes:02}:00
#PBS -r y  # if max_restarts
#PBS {options}

cd "$PBS_O_WORKDIR"
exec {command}
