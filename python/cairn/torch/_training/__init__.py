"""A training that is saved and resumed as a whole: what is saved, when, and what is kept."""
