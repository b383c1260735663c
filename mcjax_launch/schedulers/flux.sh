#!/bin/bash
#flux: --job-name={name}
#flux: --nodes={hosts}
#flux: --nslots={slots}
#flux: --gpus-per-slot={gpus_per_rank}
#flux: --time-limit={whole_minutes}m
#flux: --signal=USR1@{warning}s
#flux: {options}

export MCJAX_PROCS_PER_HOST={ranks}
exec {command}
