"""`python -m kheads.anatomy` prints the tables of supported models and of refusals."""

from kheads.anatomy.catalogue import refused, supported

print(f"{supported()}\n\n{refused()}")
