"""What users ask of jobs that exist: who may, which job is meant, what changes."""
