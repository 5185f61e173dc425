"""Many runs: method x K x seed and any further axis, resumable, on one machine or many."""

from kheads.lab.sweep.driving import Status, drive
from kheads.lab.sweep.engines import Engine, Here, Processes, Ray
from kheads.lab.sweep.plan import Run, Sweep, expand, read
from kheads.lab.sweep.store import Store

__all__ = ["Engine", "Here", "Processes", "Ray", "Run", "Status", "Store", "Sweep", "drive", "expand", "read"]
