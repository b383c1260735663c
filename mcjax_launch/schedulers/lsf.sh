#!/bin/bash
#BSUB -J {name}
#BSUB -n {slots}
#BSUB -R "span[ptile={ranks}]"
#BSUB -gpu "num={gpus}"
#BSUB -W {whole_minutes}
## SIGTERM, this number of minutes before the end of the job's time.
#BSUB -wt 2
#BSUB -wa TERM
#BSUB -r  # if max_restarts
#BSUB {options}

exec {command}
