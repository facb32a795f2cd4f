"""The store that the model recovers from the files of a stop or a crash, compared with the one that was opened on them."""

from collections.abc import Iterable
from dataclasses import replace

from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.reference import consume_queue, index_service, mapped_file_queue, store_recovery
from rocketmq_ha.reference.consume_queue import ConsumeQueue
from rocketmq_ha.reference.dispatch import Dispatched, DispatchSettings, do_reput
from rocketmq_ha.reference.index_file import IndexFile
from rocketmq_ha.reference.mapped_file_queue import Refused
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec.profile import HARDENED, Profile

Images = dict[tuple[str, ...], bytes]  # the parts of a path in the store -> the bytes of the file


def load(images: Images, sizes: DispatchSettings, log_file_size: int, *, abort: bool) -> store_recovery.Store | Refused:
    """Load the files as a new process does."""
    commit_log = {path[1]: data for path, data in images.items() if path[0] == "commitlog"}
    queues = {}
    for topic, queue_id in sorted({path[1:3] for path in images if path[0] == "consumequeue"}):
        found = {path[3]: data for path, data in images.items() if path[:3] == ("consumequeue", topic, queue_id)}
        files = mapped_file_queue.load(sizes.mapped_file_size_consume_queue, found)
        assert isinstance(files, Log)
        queues[topic, int(queue_id)] = ConsumeQueue(topic, int(queue_id), files)
    index = tuple(
        IndexFile(path[1], sizes.max_hash_slot_num, sizes.max_index_num, images[path])
        for path in sorted(images)
        if path[0] == "index"
    )
    return store_recovery.load(log_file_size, commit_log, Dispatched(queues, index), images["checkpoint",], abort=abort)


def profile_of(options: StoreOptions) -> Profile:
    return replace(HARDENED, clears_tail=options.clear_tail, checks_recovery=options.clear_tail)


def start_of(images: Images, options: StoreOptions, *, abort: bool) -> int:
    """The offset of the file at which recovery begins; 0 for a log without files."""
    assert options.file_size is not None
    commit_log = {path[1]: data for path, data in images.items() if path[0] == "commitlog"}
    found = store_recovery.load(options.file_size, commit_log, Dispatched(), images["checkpoint",], abort=abort)
    assert isinstance(found, store_recovery.Store), found
    if found.log.base is None:
        return 0
    return store_recovery.start_of_recovery(found.log, not abort, found.checkpoint, profile_of(options))


def model_of(images: Images, options: StoreOptions, *, abort: bool) -> store_recovery.Store:
    """The model's store, recovered and dispatched. Raises: AssertionError, if the model refuses it."""
    assert options.index_geometry is not None
    assert options.file_size is not None
    assert options.queue_file_size is not None
    profile = profile_of(options)
    geometry = options.index_geometry
    sizes = DispatchSettings(options.queue_file_size, geometry.hash_slot_num, geometry.index_num)
    loaded = load(images, sizes, options.file_size, abort=abort)
    assert isinstance(loaded, store_recovery.Store), loaded
    made_at = "9" * 16 + "0"
    recovered = store_recovery.recover(loaded, made_at, sizes, profile)
    assert isinstance(recovered, store_recovery.Store), recovered
    dispatched = do_reput(recovered.dispatched, recovered.log, made_at, sizes, profile)
    return store_recovery.Store(recovered.log, dispatched, recovered.checkpoint)


def assert_times_agree(store: MessageStore, model: store_recovery.Store) -> None:
    """Compare the checkpoints of a store that has just been opened."""
    if store.max_offset:
        mine, told = store.checkpoint, model.checkpoint
        assert mine.physic_msg_timestamp == told.physic_msg_timestamp
        assert mine.logics_msg_timestamp == told.logics_msg_timestamp
        assert mine.index_msg_timestamp == told.index_msg_timestamp


def assert_agrees(store: MessageStore, model: store_recovery.Store, keys: Iterable[tuple[str, str]]) -> None:
    """Compare all files and offsets. Args:  keys: (topic, key) of each message that the index is asked for."""
    log = model.log
    assert (store.min_offset, store.max_offset) == (min_offset(log), max_offset(log))
    # An empty file at the end of the log does not matter; one at offset 0 does.
    files = [file for file in store.log.queue.files if file.base < max(store.max_offset, store.min_offset + 1)]
    assert {file.path.name: bytes(file.mapping) for file in files} == mapped_file_queue.files(log)
    ours = {(topic.decode(), queue_id): queue for (topic, queue_id), queue in store.queues if queue.max_offset}
    assert ours.keys() == model.dispatched.queues.keys()
    for key, queue in model.dispatched.queues.items():
        mine = ours[key]
        assert mine.min_offset == consume_queue.min_offset_in_queue(queue), key
        assert mine.max_offset == consume_queue.max_offset_in_queue(queue), key
        first = (queue.mapped_file_queue.base or 0) // consume_queue.CQ_STORE_UNIT_SIZE
        entries = [(one.offset, one.size, one.tags_code) for one in consume_queue.entries(queue.mapped_file_queue.data)]
        assert [tuple(entry) for _, entry in mine.entries()] == entries, key
        assert next(mine.entries(), (first,))[0] == first, key
    assert [file.path.read_bytes() for file in store.index.files] == [file.data for file in model.dispatched.index]
    for topic, word in keys:
        found = sorted(index_service.query_offset(model.dispatched.index, topic, word, 64, 0, 1 << 62))
        assert store.index.query_offset(topic, word, 64, 0, 1 << 62) == found
