"""Metrics: pure functions over accuracies, and their streaming twins. NumPy only.

Sources are cited by number:

- 000: De Lange, van de Ven, Tuytelaars: Continual evaluation for lifelong learning: identifying the
  stability gap.
- 001: Michel, Chierchia, Negrel, Bercher, Yamasaki: New metrics for analyzing continual learners.
- 002: Hsu, Liu, Kira: Re-evaluating continual learning scenarios.
- 003: Chen, Nguyen, Gorur, Chaudhry: Is forgetting less a good inductive bias for forward transfer?
- 004: Pfülb, Gepperth: A comprehensive, application-oriented study of catastrophic forgetting in DNNs.
"""
