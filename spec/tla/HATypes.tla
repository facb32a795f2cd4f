------------------------------ MODULE HATypes ------------------------------
(* The protocol level of spec/protocol.md: constants, variables, what type they have, and the words that the actions use.       *)
(* Read HATypes, HAActions, HAProperties, HA in this order.  A unit is one message's worth of log, a frame is a run of units, a *)
(* report is one offset.                                                                                                        *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Slaves,            \* 1..N
    MaxPuts, MaxCuts, MaxMasterCrashes, MaxSlaveCrashes, MaxDeletes, MaxForgeries,
    FileSize,          \* units in a file
    Batch,             \* units in a frame at most                                   HA-W-5
    SyncPuts,          \* whether puts may wait
    Replicas,          \* how many slaves must have a put that waits                   HA-G-30
    FallBehindMax,     \* a put so far beyond push2 is refused                        HA-G-3
    AcksFlushed,       \* whether a slave flushes before it reports                  HA-S-60
    FrameWindow,       \* frames in flight on a connection at most
    ReportWindow,      \* reports in flight on a connection at most
    Checks,            \* hardened: bad reports close the connection                 HA-M-11, HA-M-12
    Forgets,           \* hardened: acks and counts are of what is sent, while open  HA-G-5
    AtOnce,            \* hardened: a slave reports on connecting                    HA-S-3
    IgnoresHeartbeats, \* hardened: heartbeats change nothing, frames are checked    HA-S-11, HA-ST-7
    Coalesces,         \* hardened: one report behind all the frames of a read       HA-S-7
    Overlaps,          \* hardened: a slave first asks for its last unit, to compare HA-S-61
    NONE               \* a model value: no connection

Slots == {1, 2}
Forged == 99           \* an offset that no log reaches

VARIABLES
    log,      \* the master's units; the one at offset i is log[i + 1], and is the epoch in which it was put
    flushed,  \* what is beyond may be lost in a crash
    min,      \* units below are deleted
    epoch,    \* how often the master has crashed
    push2,    \* push2_slave_max_offset
    waiting,  \* the next offsets of the puts that wait
    conn,     \* conn[s][k]: a connection as the master holds it, or NONE
    slave,    \* slave[s]: its log and its end of the connection
    used      \* how often each bounded thing has happened

vars == <<log, flushed, min, epoch, push2, waiting, conn, slave, used>>

(* ----------------------------------------------------- types ---------------------------------------------------------------- *)

IsUnits(u, most) == Len(u) <= most /\ \A i \in 1..Len(u) : u[i] \in 0..epoch

IsOffset(o) == o \in 0..Forged

IsFrame(f) == IsOffset(f.offset) /\ IsUnits(f.units, Batch)

IsConnection(c) ==
    /\ DOMAIN c = {"req", "ack", "start", "next", "frames", "reports", "stale"}
    /\ \A o \in {c.req, c.ack, c.start, c.next} : o = -1 \/ IsOffset(o)
    /\ Len(c.frames) <= FrameWindow /\ \A i \in 1..Len(c.frames) : IsFrame(c.frames[i])
    /\ Len(c.reports) <= ReportWindow /\ \A i \in 1..Len(c.reports) : IsOffset(c.reports[i])
    /\ c.stale \in BOOLEAN

\* The slave's max offset.  HA-ST-6 "Replicated bytes MUST be appended at the max offset".
MaxOf(v) == IF v.base = -1 THEN 0 ELSE v.base + Len(v.units)

IsSlave(v) ==
    /\ DOMAIN v = {"base", "units", "slot", "reported", "flushed"}
    /\ v.base = -1 \/ (IsOffset(v.base) /\ v.base % FileSize = 0)
    /\ IsUnits(v.units, MaxPuts)
    /\ v.slot \in {0} \union Slots
    /\ IsOffset(v.reported)
    /\ v.flushed \in 0..(IF AcksFlushed THEN MaxOf(v) ELSE 0)

TypeOK ==
    /\ IsUnits(log, MaxPuts)
    /\ flushed \in 0..Len(log)
    /\ min \in 0..Len(log) /\ min % FileSize = 0
    /\ epoch = used.mcrashes
    /\ IsOffset(push2)
    /\ waiting \subseteq 1..Len(log)
    /\ \A s \in Slaves : \A k \in Slots : conn[s][k] # NONE => IsConnection(conn[s][k])
    /\ \A s \in Slaves : IsSlave(slave[s])
    /\ used \in [puts: 0..MaxPuts, cuts: 0..MaxCuts, mcrashes: 0..MaxMasterCrashes, scrashes: 0..MaxSlaveCrashes,
                 deletes: 0..MaxDeletes, forgeries: 0..MaxForgeries]
    \* Both ends agree: a slave that holds a connection has one at the master that is not stale.  To nobody nothing is on its way.
    /\ \A s \in Slaves : slave[s].slot > 0 => conn[s][slave[s].slot] # NONE
    /\ \A s \in Slaves : \A k \in Slots : conn[s][k] # NONE =>
          /\ conn[s][k].stale = (slave[s].slot # k)
          /\ conn[s][k].stale => conn[s][k].frames = <<>>

(* ----------------------------------------------------- words ---------------------------------------------------------------- *)

Least(a, b) == IF a < b THEN a ELSE b
Greatest(S) == CHOOSE m \in S : \A o \in S : o <= m

FileStart(o) == o - (o % FileSize)         \* HA-ST-1: where the file of o begins
mmax == Len(log)                           \* the master's max offset

MaxOffset(s) == MaxOf(slave[s])           \* the slave's max offset

\* What a slave reports on connecting.  HA-S-1 "its max offset" (classic); HA-S-61 "the start of its last whole record" (hardened).
FirstReport(v) == IF Overlaps /\ v.units # <<>> THEN MaxOf(v) - 1 ELSE MaxOf(v)

Open == {p \in Slaves \X Slots : conn[p[1]][p[2]] # NONE}
At(p) == conn[p[1]][p[2]]

\* Whether a connection has reported more than where its transfer started: something that this master sent it.
HasAcked(c) == c.start # -1 /\ c.ack > c.start

\* What a connection has acknowledged.  HA-G-4 "the greatest report ever received from anyone" (classic, quirk 1); HA-G-5
\* "greater than the offset at which the transfer of its connection started" (hardened).
Acked(c) == IF Forgets /\ ~HasAcked(c) THEN 0 ELSE c.ack

\* HA-G-4 "a connection counts as a slave from its accept on" (classic, quirk 3), or HA-G-5 "from its first acknowledgement
\* on".  HA-G-31 "MUST count once": a slave may have two connections, one of them stale.
Counted == {s \in Slaves : \E k \in Slots : conn[s][k] # NONE /\ (Forgets => HasAcked(conn[s][k]))}

\* What a slave has acknowledged on the connections of cs: the greatest, or 0.
AckedBy(cs, s) == Greatest({0} \union {Acked(cs[s][k]) : k \in {j \in Slots : cs[s][j] # NONE}})

\* HA-G-30 "the N-th greatest among the acknowledgements of the replicas": the most that so many slaves have acknowledged.
Acknowledged(cs) ==
    Greatest({0} \union {o \in {AckedBy(cs, s) : s \in Slaves} : Cardinality({s \in Slaves : AckedBy(cs, s) >= o}) >= Replicas})

\* Where the next frame of a connection starts, once req is known.  HA-M-4 "A slave_request_offset of 0 MUST start the transfer at
\* the beginning of the last commit-log file"; HA-M-5 "Any other slave_request_offset MUST start the transfer at that offset".
Start(c) == IF c.next # -1 THEN c.next ELSE IF c.req = 0 THEN FileStart(mmax) ELSE c.req

\* The frame at n: HA-M-7 "that the master has when the frame is built"; HA-W-5 "MUST NOT be larger than
\* ha_transfer_batch_size"; HA-W-4 "MUST NOT cross the end of a commit-log file".
FrameAt(n) ==
    LET end == Least(Least(n + Batch, mmax), FileStart(n) + FileSize)
    IN  [offset |-> n, units |-> SubSeq(log, n + 1, end)]

\* HA-M-12 "greater than 0 and less than the log's min offset"; HA-M-11 "less than the report taken before it, or if it is too
\* large: a first report beyond the end of the log, or a later one beyond what has been sent", unless it equals the one before it.
IsBad(c, r) ==
    IF c.req = -1
    THEN r > mmax \/ ~(r = 0 \/ r >= min)
    ELSE LET sent == IF c.next = -1 THEN c.req ELSE c.next
         IN  r < c.ack \/ (r > c.ack /\ r > sent)

=============================================================================
