----------------------------- MODULE HAActions -----------------------------
(* What can happen, one operator an action, in the order of spec/protocol.md.  The ids are those of the clauses in spec/*.md.   *)
(* An action that would leave the state as it is, is no step: where that could be, the last guard says so.                      *)
EXTENDS HATypes

Connection(reports) == [req |-> -1, ack |-> -1, start |-> -1, next |-> -1, frames |-> <<>>, reports |-> reports, stale |-> FALSE]

Init ==
    /\ log = <<>> /\ flushed = 0 /\ min = 0 /\ epoch = 0 /\ push2 = 0 /\ waiting = {}
    /\ conn = [s \in Slaves |-> [k \in Slots |-> NONE]]
    /\ slave = [s \in Slaves |-> [base |-> -1, units |-> <<>>, slot |-> 0, reported |-> 0, flushed |-> 0]]
    /\ used = [puts |-> 0, cuts |-> 0, mcrashes |-> 0, scrashes |-> 0, deletes |-> 0, forgeries |-> 0]

(* ------------------------------------------- closing and acknowledging, at the master --------------------------------------- *)

\* With the connection goes what it has acknowledged: HA-G-5 "the greatest acknowledgement of the connections that are open".
\* (Classic never lowers push2: HA-G-4 "the greatest report ever received from anyone", quirk 2.)
\* What the slave knows of it is the caller's to say.
CloseAtMaster(s, k) ==
    /\ conn' = [conn EXCEPT ![s][k] = NONE]
    /\ push2' = IF Forgets THEN Acknowledged([conn EXCEPT ![s][k] = NONE]) ELSE push2

\* HA-G-1 "MUST end with PUT_OK when push2_slave_max_offset is at least the offset after its message"; HA-G-17 "MUST be notified
\* when push2_slave_max_offset grows, and only then"; HA-G-18 "One slave's report MUST be enough to end a put", but for
\* HA-G-30.
Ack(r) ==
    IF r > push2
    THEN push2' = r /\ waiting' = {o \in waiting : o > r}
    ELSE UNCHANGED <<push2, waiting>>

(* ------------------------------------------------- the master's log --------------------------------------------------------- *)

PutOne ==
    /\ used.puts < MaxPuts
    /\ log' = Append(log, epoch)
    /\ used' = [used EXCEPT !.puts = @ + 1]

Put ==
    /\ PutOne
    /\ UNCHANGED <<flushed, min, epoch, push2, waiting, conn, slave>>

\* HA-G-3 "MUST end with SLAVE_NOT_AVAILABLE, without waiting, when there is no slave", or when its end is "ha_slave_fallbehind_max
\* or more beyond push2_slave_max_offset"; HA-G-32 "when fewer than N replicas count".
\* HA-G-1: with PUT_OK, if a report is beyond it already; no slave sends such a report (quirk 1).
PutSync ==
    /\ SyncPuts
    /\ PutOne
    /\ waiting' = IF Cardinality(Counted) >= Replicas /\ push2 < mmax + 1 /\ mmax + 1 < push2 + FallBehindMax
                  THEN waiting \union {mmax + 1}
                  ELSE waiting
    /\ UNCHANGED <<flushed, min, epoch, push2, conn, slave>>

\* HA-G-2 "MUST end with FLUSH_SLAVE_TIMEOUT when more than sync_flush_timeout has passed since the put".
Timeout(o) ==
    /\ o \in waiting
    /\ waiting' = waiting \ {o}
    /\ UNCHANGED <<log, flushed, min, epoch, push2, conn, slave, used>>

\* Without a crash to come it makes no difference, and no states.
Flush ==
    /\ used.mcrashes < MaxMasterCrashes
    /\ flushed' = mmax
    /\ flushed # mmax
    /\ UNCHANGED <<log, min, epoch, push2, waiting, conn, slave, used>>

\* The oldest file goes, never the last one.  HA-ST-13 "older files may have been deleted".
Delete ==
    /\ used.deletes < MaxDeletes
    /\ min + FileSize <= FileStart(mmax)
    /\ min + FileSize < mmax
    /\ min' = min + FileSize
    /\ used' = [used EXCEPT !.deletes = @ + 1]
    /\ UNCHANGED <<log, flushed, epoch, push2, waiting, conn, slave>>

(* ------------------------------------------------- reports ------------------------------------------------------------------ *)

\* What reporting r makes of a slave.  HA-S-60 "MUST have on its disk all that a report acknowledges before it writes the report".
Flushing(v, r) == [v EXCEPT !.flushed = IF AcksFlushed /\ r > @ THEN r ELSE @]

\* HA-S-1 "MUST set current_reported_offset to its max offset", or HA-S-61 to the start of its last whole record; HA-S-3 "MUST report
\* at once on connecting" in hardened; HA-S-19 "MUST NOT hold more than one connection".
Connect(s) ==
    /\ slave[s].slot = 0
    /\ \E k \in Slots :
        /\ conn[s][k] = NONE /\ \A j \in Slots : j < k => conn[s][j] # NONE
        /\ conn' = [conn EXCEPT ![s][k] = Connection(IF AtOnce THEN <<FirstReport(slave[s])>> ELSE <<>>)]
        /\ LET r == FirstReport(slave[s])
               v == [slave[s] EXCEPT !.slot = k, !.reported = r]
           IN  slave' = [slave EXCEPT ![s] = IF AtOnce THEN Flushing(v, r) ELSE v]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, used>>

\* A report more in flight.  Where there is no room it takes the place of the last one, which has not arrived (HA-M-2).
Reporting(c, r) ==
    [c EXCEPT !.reports = IF Len(@) < ReportWindow THEN Append(@, r) ELSE [@ EXCEPT ![ReportWindow] = r]]

\* HA-S-2 "when more than ha_send_heartbeat_interval has passed since its last report".
Report(s) ==
    LET k == slave[s].slot IN
    /\ k > 0
    /\ conn' = [conn EXCEPT ![s][k] = Reporting(@, slave[s].reported)]
    /\ slave' = [slave EXCEPT ![s] = Flushing(@, slave[s].reported)]
    /\ conn' # conn \/ slave' # slave
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, used>>

\* Nothing proves who reports (HA-W-1: eight bytes): quirk 1.  Any offset of the log, or one that no log reaches.
ForgeReport(s) ==
    LET k == slave[s].slot IN
    /\ used.forgeries < MaxForgeries
    /\ k > 0
    /\ \E r \in 0..mmax \union {Forged} : conn' = [conn EXCEPT ![s][k] = Reporting(@, r)]
    /\ used' = [used EXCEPT !.forgeries = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave>>

\* A read brings one report or more: HA-M-2 "the master MUST take the last complete report, and no other".  HA-M-3 "The first
\* non-negative report MUST fix slave_request_offset".  HA-M-11 "MUST close the connection and MUST NOT be used" (hardened).
DeliverReports(s, k) ==
    /\ <<s, k>> \in Open
    /\ \E n \in 1..Len(conn[s][k].reports) :
       LET c == conn[s][k]
           r == c.reports[n]
           rest == SubSeq(c.reports, n + 1, Len(c.reports))
       IN  IF Checks /\ IsBad(c, r)
           THEN /\ CloseAtMaster(s, k)
                /\ slave' = IF c.stale THEN slave ELSE [slave EXCEPT ![s].slot = 0]
                /\ UNCHANGED waiting
           ELSE LET taken == [c EXCEPT !.reports = rest, !.ack = r, !.req = IF @ < 0 THEN r ELSE @] IN
                /\ conn' = [conn EXCEPT ![s][k] = taken]
                /\ Ack(Acknowledged([conn EXCEPT ![s][k] = taken]))
                /\ UNCHANGED slave
    /\ UNCHANGED <<log, flushed, min, epoch, used>>

(* ------------------------------------------------- frames ------------------------------------------------------------------- *)

\* HA-M-1 "while slave_request_offset is -1 the write side waits".  HA-M-28 "MUST NOT wait for a report between two frames".
MayWrite(s, k) ==
    /\ <<s, k>> \in Open
    /\ conn[s][k].req # -1
    /\ Len(conn[s][k].frames) < FrameWindow

\* The start is kept: what a report must be beyond to acknowledge anything (HA-G-5).
Started(c, n) == [c EXCEPT !.start = IF c.next = -1 THEN n ELSE @]

\* HA-M-27 "MUST be fixed once, when the write side first finds a report", even if there is nothing to send.
Begin(s, k) ==
    /\ <<s, k>> \in Open
    /\ conn[s][k].req # -1
    /\ conn[s][k].next = -1
    /\ LET n == Start(conn[s][k])
       IN  /\ ~(min <= n /\ n < mmax)
           /\ conn' = [conn EXCEPT ![s][k] = [Started(@, n) EXCEPT !.next = n]]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave, used>>

\* HA-M-7 "next_transfer_from_where MUST advance by their number at once", whether or not the frame arrives.  On a stale connection
\* it does not.
Transfer(s, k) ==
    /\ MayWrite(s, k)
    /\ LET c == conn[s][k]
           n == Start(c)
           f == FrameAt(n)
       IN  /\ min <= n /\ n < mmax
           /\ conn' = [conn EXCEPT ![s][k] = [Started(c, n) EXCEPT
                                                   !.next = n + Len(f.units),
                                                   !.frames = IF c.stale THEN <<>> ELSE Append(@, f)]]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave, used>>

\* HA-M-8 "nothing has been written for more than ha_send_heartbeat_interval": HA-W-3 "A frame with a body size of 0 is a
\* heartbeat, and its offset MUST be next_transfer_from_where".
Heartbeat(s, k) ==
    /\ MayWrite(s, k)
    /\ ~conn[s][k].stale
    /\ LET c == conn[s][k]
           n == Start(c)
       IN  conn' = [conn EXCEPT ![s][k] = [Started(c, n) EXCEPT !.next = n, !.frames = Append(@, [offset |-> n, units |-> <<>>])]]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave, used>>

\* While it holds a connection, what a slave reports is where its next unit belongs: its max offset, or, in hardened, as far as
\* its last unit has been compared with the master's.  HA-S-4 "its max offset is not 0 and differs from the frame's offset"; HA-S-63
\* the same of what is compared; HA-S-11 "on an empty log, whose offset is negative or not the start of a file" (hardened); HA-S-62
\* "Where a byte differs it MUST close the connection".
Refuses(v, f) ==
    LET m == MaxOf(v) IN
    \/ m # 0 /\ v.reported # f.offset
    \/ IgnoresHeartbeats /\ m = 0 /\ f.offset % FileSize # 0
    \/ \E i \in 1..Len(f.units) : f.offset + i <= m /\ f.units[i] # v.units[f.offset + i - v.base]

\* HA-ST-6 "In a store without files they open the file that holds their offset".  HA-S-10 "A heartbeat is
\* appended too, with length 0" (classic, quirk 17).
BaseAfter(v, f) ==
    IF v.base # -1 THEN v.base
    ELSE IF IgnoresHeartbeats /\ f.units = <<>> THEN -1
    ELSE FileStart(f.offset)

\* HA-S-5: append.  The units that the slave does not have yet go to the end of its log; on a log without units all do, whatever the
\* frame's offset.
Appended(v, f) ==
    LET m == MaxOf(v)
        held == IF m = 0 THEN 0 ELSE Least(m - f.offset, Len(f.units))
        after == [v EXCEPT !.base = BaseAfter(v, f), !.units = @ \o SubSeq(f.units, held + 1, Len(f.units))]
    IN  [after EXCEPT !.reported = IF held < m - f.offset THEN f.offset + held ELSE MaxOf(after)]

\* What becomes of a slave by a run of frames, up to the first one that it refuses.
RECURSIVE Dispatch(_, _)
Dispatch(v, fs) ==
    IF fs = <<>> THEN [slave |-> v, refused |-> FALSE]
    ELSE IF Refuses(v, Head(fs)) THEN [slave |-> v, refused |-> TRUE]
    ELSE Dispatch(Appended(v, Head(fs)), Tail(fs))

\* A read brings one frame or more.  HA-S-6 "After each frame the slave reports its max offset" in classic, which so takes one.
\* HA-S-7 "When the socket holds no more bytes" in hardened, behind all of them.
DeliverFrames(s) ==
    LET k == slave[s].slot IN
    /\ k > 0
    /\ \E n \in 1..Len(conn[s][k].frames) :
       LET c == conn[s][k]
           rest == SubSeq(c.frames, n + 1, Len(c.frames))
           d == Dispatch(slave[s], SubSeq(c.frames, 1, n))
           m == d.slave.reported
           isNew == m > slave[s].reported
       IN  /\ n = 1 \/ Coalesces
           /\ IF d.refused
              THEN /\ CloseAtMaster(s, k)
                   /\ slave' = [slave EXCEPT ![s] = [d.slave EXCEPT !.slot = 0, !.reported = slave[s].reported]]
              ELSE /\ slave' = [slave EXCEPT ![s] = IF isNew THEN Flushing(d.slave, m) ELSE d.slave]
                   /\ conn' = [conn EXCEPT ![s][k] = LET taken == [c EXCEPT !.frames = rest]
                                                     IN  IF isNew THEN Reporting(taken, m) ELSE taken]
                   /\ UNCHANGED push2
    /\ UNCHANGED <<log, flushed, min, epoch, waiting, used>>

(* ------------------------------------------------- links -------------------------------------------------------------------- *)

\* Both ends are told.  HA-M-13 "MUST close the connection, and the pending frame is dropped"; HA-S-13 "the slave MUST drop the
\* unparsed bytes".
Cut(s) ==
    /\ used.cuts < MaxCuts
    /\ slave[s].slot > 0
    /\ CloseAtMaster(s, slave[s].slot)
    /\ slave' = [slave EXCEPT ![s].slot = 0]
    /\ used' = [used EXCEPT !.cuts = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, waiting>>

\* The slave's end is gone, and the master has not noticed.  What the slave has reported is on its way all the same: TCP
\* delivers what was sent before the end.  Without a connection nothing becomes stale.
Stale(s) ==
    LET k == slave[s].slot IN
    IF k = 0 THEN conn
    ELSE [conn EXCEPT ![s][k].stale = TRUE, ![s][k].frames = <<>>]

CutUnseen(s) ==
    /\ used.cuts < MaxCuts
    /\ slave[s].slot > 0
    /\ conn' = Stale(s)
    /\ slave' = [slave EXCEPT ![s].slot = 0]
    /\ used' = [used EXCEPT !.cuts = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting>>

\* HA-M-9 "from which nothing has been read for more than ha_housekeeping_interval MUST be closed".
Reap(s, k) ==
    /\ <<s, k>> \in Open
    /\ conn[s][k].stale
    /\ CloseAtMaster(s, k)
    /\ UNCHANGED <<log, flushed, min, epoch, waiting, slave, used>>

(* ------------------------------------------------- crashes ------------------------------------------------------------------ *)

\* What is flushed survives, and of what is not as much as may be.  Waiting puts end with their master.
MasterCrash ==
    /\ used.mcrashes < MaxMasterCrashes
    /\ \E n \in flushed..mmax :
        /\ min <= n
        /\ log' = SubSeq(log, 1, n)
        /\ flushed' = n
    /\ epoch' = epoch + 1
    /\ push2' = 0
    /\ waiting' = {}
    /\ conn' = [s \in Slaves |-> [k \in Slots |-> NONE]]
    /\ slave' = [s \in Slaves |-> [slave[s] EXCEPT !.slot = 0]]
    /\ used' = [used EXCEPT !.mcrashes = @ + 1]
    /\ UNCHANGED min

\* A slave of which n units are left.  HA-ST-7 "a store without a whole record MUST have no files" (hardened).
Truncated(v, n) ==
    LET cut == [v EXCEPT !.slot = 0, !.units = SubSeq(@, 1, n), !.base = IF IgnoresHeartbeats /\ n = 0 THEN -1 ELSE @]
    IN  [cut EXCEPT !.flushed = Least(@, MaxOf(cut))]

\* Any suffix that was not flushed is lost, or none.
SlaveCrash(s) ==
    /\ used.scrashes < MaxSlaveCrashes
    /\ \E n \in 0..Len(slave[s].units) :
        /\ n = Len(slave[s].units) \/ slave[s].base + n >= slave[s].flushed
        /\ slave' = [slave EXCEPT ![s] = Truncated(@, n)]
    /\ conn' = Stale(s)
    /\ used' = [used EXCEPT !.scrashes = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting>>

=============================================================================
