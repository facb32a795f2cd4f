"""A copy of a state with some fields changed, as `dataclasses.replace` makes it, in a third of its time.

Every transition of the model makes such copies: with `dataclasses.replace` they took a third of a campaign. So for each class
a function is generated once, as `dataclass` itself generates the constructor. It sets the slots of the new object directly.
"""

from dataclasses import fields
from typing import TYPE_CHECKING

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # so that the type checker knows the fields
else:
    _copies = {}  # a function for each class, which takes an object and the changed fields

    def replace(state, /, **changes):
        """A copy of `state` with `changes`. Raises: TypeError, for a field that its class does not have."""
        try:
            copy = _copies[state.__class__]
        except KeyError:
            copy = _copies[state.__class__] = _generate(state.__class__)
        return copy(state, **changes)

    def _generate(cls):
        names = [field.name for field in fields(cls)]
        # A class that checks or computes fields as it is made, or has no slots, would need the constructor.
        assert "__slots__" in vars(cls) and not hasattr(cls, "__post_init__") and all(field.init for field in fields(cls)), cls
        scope = {"_cls": cls, "_new": object.__new__, "_same": object()}
        scope |= {f"_set_{name}": getattr(cls, name).__set__ for name in names}
        lines = [f"def copy({', '.join(['_state', '/', *(f'{name}=_same' for name in names)])}):", " _made = _new(_cls)"]
        lines += [f" _set_{name}(_made, _state.{name} if {name} is _same else {name})" for name in names]
        exec("\n".join([*lines, " return _made"]), scope)
        return scope["copy"]
