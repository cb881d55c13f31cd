"""sbatch: each launch submitted once for its token; arrays, throttles and native dependencies."""
