"""The probes of lesson 07: those of its visible checks. What they record are the numbers themselves,
each of which the judge compares with what it drew."""

from course.checks import quantized_cache as visible

PROBES = {name: getattr(visible, name).probe for name in visible.__all__}
