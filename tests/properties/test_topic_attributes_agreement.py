"""The attributes of a topic after a request equal those of the model, for any text of the request. HA-BT-82."""

from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_ha.impl.broker import topic_attributes
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.reference import topic_attributes as model

NAMES = ("message.type", "queue.type", "cleanup.policy", "reserve.time")
VALUES = ("FIFO", "DELAY", "MIXED", "SimpleCQ", "BatchCQ", "DELETE", "COMPACTION", "-1", "1", "")
names = st.sampled_from([*NAMES, "other", ""])
values = st.sampled_from(VALUES)
items = st.one_of(
    st.builds("+{}={}".format, names, values),
    st.builds("-{}".format, names),
    st.builds("{}{}".format, st.sampled_from(["", "+", "-", "="]), names),
    st.text("+-=, aFIO.", max_size=5),
)
texts = st.one_of(st.lists(items, max_size=4).map(",".join), st.text(max_size=12))


@given(current=st.dictionaries(st.sampled_from([*NAMES, "of 6.x"]), values, max_size=3), changes=texts, is_new=st.booleans())
@example(current={}, changes="+message.type=FIFO,,", is_new=True)
@example(current={}, changes=",+message.type=FIFO", is_new=True)
@example(current={"queue.type": "BatchCQ"}, changes="-queue.type", is_new=False)
def test_attributes_equal_those_of_the_model(current: dict[str, str], changes: str, is_new: bool) -> None:
    """HA-BT-82 "MUST change the attributes of the topic as it says", "MUST be refused with SYSTEM_ERROR"."""
    current = {} if is_new else current
    before = dict(current)
    expected = model.alter(current, changes, is_new=is_new)
    try:
        found = topic_attributes.alter(current, changes, is_new=is_new)
    except RequestInvalid:
        assert expected is None
    else:
        assert found == expected
    assert current == before
