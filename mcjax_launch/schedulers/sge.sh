#!/bin/bash
#$ -N {name}
#$ -S /bin/bash
#$ -cwd
#$ -notify
## Most sites have a parallel environment of this name.
#$ -pe mpi {slots}  # if several_slots
## For each slot.
#$ -l gpu={gpus_per_rank}
#$ -l h_rt={hours}:{minutes:02}:00
#$ -r y  # if max_restarts
#$ {options}

exec {command}
