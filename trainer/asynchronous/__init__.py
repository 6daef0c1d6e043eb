"""TRL's AsyncGRPOTrainer over the record. `loop` alone names TRL's classes; `check` says whether they can run here."""
