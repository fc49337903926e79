"""A run on a cluster: the same command, written for Slurm, Ray and Kubernetes. Nothing is submitted from here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_SLURM = """#!/bin/bash
# From this folder: sbatch slurm.sh
#SBATCH --job-name=counterpoint
#SBATCH --gres=gpu:1
#SBATCH --output=log.txt
set -eu
cd "$SLURM_SUBMIT_DIR"
# The environment has to hold: {needs}
{command}
"""
_RAY = """#!/bin/sh
# From this folder, with RAY_ADDRESS set: sh ray.sh
# The environment of the cluster has to hold: {needs}
exec ray job submit --working-dir . -- {command}
"""
_KUBERNETES = """# The folder has to lie on the volume `run`, and the image to hold: {needs}
apiVersion: batch/v1
kind: Job
metadata:
  name: counterpoint-train
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: train
        image: PUT AN IMAGE HERE
        workingDir: /run
        command: [{words}]
        resources:
          limits:
            nvidia.com/gpu: 1
        volumeMounts:
        - name: run
          mountPath: /run
      volumes:
      - name: run
        persistentVolumeClaim:
          claimName: PUT A CLAIM HERE
"""


def texts(command: Sequence[str], needs: Sequence[str]) -> dict[str, str]:
    """Return the files by name.

    >>> print(texts(["trl", "sft", "--config", "a b.yaml"], ["trl"])["ray.sh"].splitlines()[-1])
    exec ray job submit --working-dir . -- trl sft --config 'a b.yaml'
    """
    line, what = shlex.join(command), ", ".join(needs)
    words = ", ".join(f'"{_escaped(word)}"' for word in command)
    return {
        "slurm.sh": _SLURM.format(needs=what, command=line),
        "ray.sh": _RAY.format(needs=what, command=line),
        "kubernetes.yaml": _KUBERNETES.format(needs=what, words=words),
    }


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"')
