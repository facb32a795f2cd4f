"""The model's own `replace` makes what `dataclasses.replace` makes, for every class of the model."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

from rocketmq_ha import reference
from rocketmq_ha.reference.replace import replace


def classes() -> Iterator[type]:
    """Every class of the model that can be copied with changes: frozen, with slots, and without a `__post_init__`."""
    for module in pkgutil.iter_modules(reference.__path__):
        for found in vars(importlib.import_module(f"rocketmq_ha.reference.{module.name}")).values():
            is_own = isinstance(found, type) and found.__module__ == f"rocketmq_ha.reference.{module.name}"
            if is_own and dataclasses.is_dataclass(found) and "__slots__" in vars(found):
                yield found


CLASSES = [cls for cls in classes() if not hasattr(cls, "__post_init__")]


def test_there_are_classes() -> None:
    assert len(CLASSES) > 100


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_copy_is_what_dataclasses_make(cls: type) -> None:
    names = [field.name for field in dataclasses.fields(cls)]
    state = cls(**{name: (name, number) for number, name in enumerate(names)})
    for changes in ({}, *({name: None} for name in names), dict.fromkeys(names, 7)):
        copy, expected = replace(state, **changes), dataclasses.replace(state, **changes)
        assert type(copy) is cls
        assert [getattr(copy, name) for name in names] == [getattr(expected, name) for name in names]
    assert [getattr(state, name) for name in names] == [(name, number) for number, name in enumerate(names)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'none_of_them'"):
        replace(state, none_of_them=1)
