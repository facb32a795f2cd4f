"""A copy of a state with some fields changed, as `dataclasses.replace` makes it, in a fifth of its time.

Every transition of the model makes such copies: with `dataclasses.replace` they took a third of a campaign. So for each class
a function is generated once, as `dataclass` itself generates the constructor. It fills the slots of a draft by plain
assignments, and then makes the draft an object of the state's class: a draft's class is the state's, but for being frozen.
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
        plain = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}
        draft = type(cls)(cls.__name__, (cls,), {"__slots__": (), **plain})
        scope = {"_cls": cls, "_draft": draft, "_same": object()}
        lines = [f"def copy({', '.join(['_state', '/', *(f'{name}=_same' for name in names)])}):", " _made = _draft()"]
        lines += [f" _made.{name} = _state.{name} if {name} is _same else {name}" for name in names]
        exec("\n".join([*lines, " _made.__class__ = _cls", " return _made"]), scope)
        return scope["copy"]
