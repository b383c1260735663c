#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={hosts}
#SBATCH --ntasks-per-node={ranks}
#SBATCH --gpus-per-node={gpus}
#SBATCH --time={minutes}
#SBATCH --requeue  # if max_restarts
#SBATCH {options}

exec {command}
