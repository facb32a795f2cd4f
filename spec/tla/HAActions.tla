----------------------------- MODULE HAActions -----------------------------
(* What can happen, one operator an action, in the order of spec/protocol.md.  The ids are those of the clauses in spec/*.md.   *)
(* An action that would leave the state as it is, is no step: where that could be, the last guard says so.                      *)
EXTENDS HATypes

Connection(report) == [req |-> -1, ack |-> -1, next |-> -1, frames |-> <<>>, report |-> report, stale |-> FALSE]

Init ==
    /\ log = <<>> /\ flushed = 0 /\ min = 0 /\ epoch = 0 /\ push2 = 0 /\ waiting = {}
    /\ conn = [s \in Slaves |-> [k \in Slots |-> NONE]]
    /\ slave = [s \in Slaves |-> [base |-> -1, units |-> <<>>, slot |-> 0, reported |-> 0]]
    /\ used = [puts |-> 0, drops |-> 0, mcrashes |-> 0, scrashes |-> 0, deletes |-> 0, forgeries |-> 0]

(* ------------------------------------------- closing and acknowledging, at the master --------------------------------------- *)

\* HA-M-13, and HA-G-5: with the connection goes what it has acknowledged.  (Classic never lowers push2: HA-G-4, quirk 2.)
\* What the slave knows of it is the caller's to say.
CloseAtMaster(s, k) ==
    /\ conn' = [conn EXCEPT ![s][k] = NONE]
    /\ push2' = IF Forgets THEN Greatest({0} \union {At(p).ack : p \in Open \ {<<s, k>>}}) ELSE push2

\* HA-G-1: PUT_OK for every put that r reaches; only a report above push2 wakes them.
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

\* HA-G-3: with nobody counted it ends at once, with SLAVE_NOT_AVAILABLE.
PutSync ==
    /\ SyncPuts
    /\ PutOne
    /\ waiting' = IF Counted # {} THEN waiting \union {mmax + 1} ELSE waiting
    /\ UNCHANGED <<flushed, min, epoch, push2, conn, slave>>

\* HA-G-2: FLUSH_SLAVE_TIMEOUT.
Timeout(o) ==
    /\ o \in waiting
    /\ waiting' = waiting \ {o}
    /\ UNCHANGED <<log, flushed, min, epoch, push2, conn, slave, used>>

Flush ==
    /\ flushed' = mmax
    /\ flushed # mmax
    /\ UNCHANGED <<log, min, epoch, push2, waiting, conn, slave, used>>

\* The oldest file goes (HA-ST-1), never the last one.
Delete ==
    /\ used.deletes < MaxDeletes
    /\ min + FileSize <= FileStart(mmax)
    /\ min + FileSize < mmax
    /\ min' = min + FileSize
    /\ used' = [used EXCEPT !.deletes = @ + 1]
    /\ UNCHANGED <<log, flushed, epoch, push2, waiting, conn, slave>>

(* ------------------------------------------------- reports ------------------------------------------------------------------ *)

\* HA-S-1; HA-S-3 where it reports at once.
Connect(s) ==
    /\ slave[s].slot = 0
    /\ \E k \in Slots :
        /\ conn[s][k] = NONE /\ \A j \in Slots : j < k => conn[s][j] # NONE
        /\ conn' = [conn EXCEPT ![s][k] = Connection(IF AtOnce THEN MaxOffset(s) ELSE Nothing)]
        /\ slave' = [slave EXCEPT ![s].slot = k, ![s].reported = MaxOffset(s)]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, used>>

\* HA-S-2: the interval has passed.  A report takes the place of one that has not arrived (HA-M-2).
Report(s) ==
    LET k == slave[s].slot IN
    /\ k > 0
    /\ conn[s][k].report # slave[s].reported
    /\ conn' = [conn EXCEPT ![s][k].report = slave[s].reported]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave, used>>

\* Nothing proves who reports (HA-W-1: eight bytes): quirk 1.
Forge(s) ==
    LET k == slave[s].slot IN
    /\ used.forgeries < MaxForgeries
    /\ k > 0
    /\ conn' = [conn EXCEPT ![s][k].report = Forged]
    /\ used' = [used EXCEPT !.forgeries = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave>>

\* HA-M-2; HA-M-3: the first report fixes req; HA-M-11, HA-M-12: a bad one closes the connection (hardened).
RecvReport(s, k) ==
    /\ <<s, k>> \in Open
    /\ conn[s][k].report # Nothing
    /\ LET c == conn[s][k]
           r == c.report
       IN  IF Checks /\ IsBad(c, r)
           THEN /\ CloseAtMaster(s, k)
                /\ slave' = IF c.stale THEN slave ELSE [slave EXCEPT ![s].slot = 0]
                /\ UNCHANGED waiting
           ELSE /\ conn' = [conn EXCEPT ![s][k] = [c EXCEPT !.report = Nothing, !.ack = r, !.req = IF @ = -1 THEN r ELSE @]]
                /\ Ack(r)
                /\ UNCHANGED slave
    /\ UNCHANGED <<log, flushed, min, epoch, used>>

(* ------------------------------------------------- frames ------------------------------------------------------------------- *)

\* HA-M-1: not before the first report.  HA-M-6: one frame at a time.
MayWrite(s, k) ==
    /\ <<s, k>> \in Open
    /\ conn[s][k].req # -1
    /\ conn[s][k].frames = <<>>

\* HA-M-4, HA-M-5, HA-M-7: next advances at once, whether or not the frame arrives.  On a stale connection it does not.
Send(s, k) ==
    /\ MayWrite(s, k)
    /\ LET c == conn[s][k]
           n == Start(c)
           f == FrameAt(n)
       IN  /\ min <= n /\ n < mmax
           /\ conn' = [conn EXCEPT ![s][k] = [c EXCEPT !.next = n + Len(f.units), !.frames = IF c.stale THEN <<>> ELSE <<f>>]]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave, used>>

\* HA-M-8, HA-W-3: a frame without units at next.
Heartbeat(s, k) ==
    /\ MayWrite(s, k)
    /\ ~conn[s][k].stale
    /\ LET c == conn[s][k]
           n == Start(c)
       IN  conn' = [conn EXCEPT ![s][k] = [c EXCEPT !.next = n, !.frames = <<[offset |-> n, units |-> <<>>]>>]]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting, slave, used>>

\* HA-S-4: a slave with data wants its max offset.  HA-S-11: one without wants the start of a file (hardened).
Refuses(s, f) ==
    LET m == MaxOffset(s) IN
    \/ m # 0 /\ m # f.offset
    \/ IgnoresHeartbeats /\ m = 0 /\ f.offset % FileSize # 0

\* HA-ST-6: a log without files opens the file of the offset, from its start.  HA-S-10: for a heartbeat too (classic, quirk 17).
BaseAfter(s, f) ==
    IF slave[s].base # -1 THEN slave[s].base
    ELSE IF IgnoresHeartbeats /\ f.units = <<>> THEN -1
    ELSE FileStart(f.offset)

\* HA-S-5: append; HA-S-6, HA-S-7: report what is new.  Units go to the end of the slave's log, whatever the frame's offset.
RecvFrame(s) ==
    LET k == slave[s].slot IN
    /\ k > 0
    /\ conn[s][k].frames # <<>>
    /\ LET f == conn[s][k].frames[1]
           base == BaseAfter(s, f)
           units == slave[s].units \o f.units
           m == IF base = -1 THEN 0 ELSE base + Len(units)
           isNew == m > slave[s].reported
       IN  IF Refuses(s, f)
           THEN /\ CloseAtMaster(s, k)
                /\ slave' = [slave EXCEPT ![s].slot = 0]
           ELSE /\ slave' = [slave EXCEPT ![s] = [base |-> base, units |-> units, slot |-> k,
                                                   reported |-> IF isNew THEN m ELSE @.reported]]
                /\ conn' = [conn EXCEPT ![s][k].frames = <<>>, ![s][k].report = IF isNew THEN m ELSE @]
                /\ UNCHANGED push2
    /\ UNCHANGED <<log, flushed, min, epoch, waiting, used>>

(* ------------------------------------------------- links -------------------------------------------------------------------- *)

\* HA-M-13, HA-S-13: both ends are told.
Drop(s) ==
    /\ used.drops < MaxDrops
    /\ slave[s].slot > 0
    /\ CloseAtMaster(s, slave[s].slot)
    /\ slave' = [slave EXCEPT ![s].slot = 0]
    /\ used' = [used EXCEPT !.drops = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, waiting>>

\* The slave's end is gone, and the master has not noticed.  Without a connection nothing becomes stale.
Stale(s) ==
    LET k == slave[s].slot IN
    IF k = 0 THEN conn
    ELSE [conn EXCEPT ![s][k].stale = TRUE, ![s][k].frames = <<>>, ![s][k].report = Nothing]

DropUnseen(s) ==
    /\ used.drops < MaxDrops
    /\ slave[s].slot > 0
    /\ conn' = Stale(s)
    /\ slave' = [slave EXCEPT ![s].slot = 0]
    /\ used' = [used EXCEPT !.drops = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting>>

\* HA-M-9: nothing has been read for too long.
Reap(s, k) ==
    /\ <<s, k>> \in Open
    /\ conn[s][k].stale
    /\ CloseAtMaster(s, k)
    /\ UNCHANGED <<log, flushed, min, epoch, waiting, slave, used>>

(* ------------------------------------------------- crashes ------------------------------------------------------------------ *)

\* What is not flushed is lost (HA-ST-5).  Waiting puts end with their master.
MasterCrash ==
    /\ used.mcrashes < MaxMasterCrashes
    /\ min <= flushed
    /\ log' = SubSeq(log, 1, flushed)
    /\ epoch' = epoch + 1
    /\ push2' = 0
    /\ waiting' = {}
    /\ conn' = [s \in Slaves |-> [k \in Slots |-> NONE]]
    /\ slave' = [s \in Slaves |-> [slave[s] EXCEPT !.slot = 0]]
    /\ used' = [used EXCEPT !.mcrashes = @ + 1]
    /\ UNCHANGED <<flushed, min>>

\* The last unit was in flight to the disk.  HA-ST-7: a store without a whole record has no files (hardened).
SlaveCrash(s) ==
    LET rest == SubSeq(slave[s].units, 1, Len(slave[s].units) - 1) IN
    /\ used.scrashes < MaxSlaveCrashes
    /\ slave' = [slave EXCEPT ![s].slot = 0, ![s].units = rest, ![s].base = IF IgnoresHeartbeats /\ rest = <<>> THEN -1 ELSE @]
    /\ conn' = Stale(s)
    /\ used' = [used EXCEPT !.scrashes = @ + 1]
    /\ UNCHANGED <<log, flushed, min, epoch, push2, waiting>>

=============================================================================
