"""What all experiments share: plans and records of jobs, tables, pictures, published figures."""
