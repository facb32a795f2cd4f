---------------------------- MODULE HAProperties ----------------------------
(* What should be true.  First what holds in both profiles, whatever happens; then what holds in hardened and fails in classic, *)
(* by number of the catalogue (spec/violations.md); then what fails in hardened too, each with its reason; then liveness.       *)
(* formal/scopes.toml says for each scope which must hold and which must be violated; run_formal.py fails on either.      *)
(* An invariant is a predicate of states; a step property, [][...]_vars, is one of steps.                                       *)
EXTENDS HAActions, TLC

Live(s) == slave[s].slot                                          \* the slot that a slave holds, or 0
Max0(S) == Greatest({0} \union S)
Kept(s, k) == conn[s][k] # NONE /\ conn'[s][k] # NONE              \* no step closes a connection and opens another in its slot

(* -------------------------------------------- in both profiles, always ------------------------------------------------------ *)

\* HA-W-4 "MUST NOT cross the end of a commit-log file".
NoFrameAcrossFile ==
    \A p \in Open : \A i \in 1..Len(At(p).frames) :
        LET f == At(p).frames[i]
        IN  f.units # <<>> => FileStart(f.offset) = FileStart(f.offset + Len(f.units) - 1)

\* HA-M-7 "A data frame MUST carry the bytes from next_transfer_from_where"; the next one begins, or next stands, behind it.
FrameIsLog ==
    \A p \in Open : \A i \in 1..Len(At(p).frames) :
        LET f == At(p).frames[i]
        IN  /\ f.offset + Len(f.units) = IF i < Len(At(p).frames) THEN At(p).frames[i + 1].offset ELSE At(p).next
            /\ f.units = SubSeq(log, f.offset + 1, f.offset + Len(f.units))

\* HA-M-1 "MUST NOT send anything before the first report".
SilentBeforeFirstReport == \A p \in Open : At(p).req = -1 => At(p).next = -1 /\ At(p).ack = -1 /\ At(p).frames = <<>>

\* HA-M-7: next_transfer_from_where never goes back within a connection.
NextMonotone == [][\A s \in Slaves, k \in Slots : Kept(s, k) => conn'[s][k].next >= conn[s][k].next]_vars

\* slave_request_offset is set once: HA-M-3 "a later report MUST move slave_ack_offset".
RequestSetOnce == [][\A s \in Slaves, k \in Slots : Kept(s, k) /\ conn[s][k].req # -1 => conn'[s][k].req = conn[s][k].req]_vars

\* HA-G-6 "Every waiting put MUST end exactly once": a put begins to wait once, when it is put, and not all slaves lag too far
\* (HA-G-3) ...
WaitersJoinByPuts ==
    [][waiting' \ waiting # {} =>
          /\ Len(log') = Len(log) + 1 /\ waiting' \ waiting = {Len(log')}
          /\ Len(log') < push2 + FallBehindMax]_vars

\* ... and ends once: by an acknowledgement that reaches it (HA-G-1), by its own timeout (HA-G-2), or with its master.
WaitersEndOnce ==
    [][LET ended == waiting \ waiting'
       IN  ended # {} => \/ push2' > push2 /\ ended = {o \in waiting : o <= push2'}
                         \/ push2' = push2 /\ Cardinality(ended) = 1
                         \/ epoch' > epoch /\ waiting' = {}]_vars

\* HA-G-1: what push2 has reached does not wait.  Only a *greater* report wakes the waiting, and so such a put would time out.
WaitersAreBeyondPush2 == \A o \in waiting : o > push2

(* ------------------------------------- in hardened always; in classic violated ---------------------------------------------- *)

\* Quirk 1: HA-M-11.  An ack is what the slave has appended.  (A stale connection's slave may have crashed since.)
AckIsAppended == \A p \in Open : ~At(p).stale => At(p).ack <= MaxOffset(p[1])

\* Quirk 1: push2 is an offset of this log.
Push2WithinLog == push2 <= mmax

\* Quirk 1: what is sent is within the log.
NextWithinLog == \A p \in Open : At(p).next <= mmax

\* Quirk 1: in a connection acks do not go back.
AckMonotone == [][\A s \in Slaves, k \in Slots : Kept(s, k) => conn'[s][k].ack >= conn[s][k].ack]_vars

\* Quirk 1, for a sync put: at PUT_OK the logs of as many slaves as are needed reach the put.
PutOkIsReached ==
    [][push2' > push2 => \A o \in waiting \ waiting' : Cardinality({s \in Slaves : MaxOffset(s) >= o}) >= Replicas]_vars

\* Quirk 1: HA-G-5.  What is acknowledged was sent, on a connection that is open: nobody acknowledges by asking for a start.
Push2WasSent == push2 > 0 => \E p \in Open : At(p).start < push2 /\ push2 <= At(p).next

\* Quirk 2: HA-G-5.  push2 is the greatest acknowledgement of the connections that are open; HA-G-30: as many slaves as are
\* needed have acknowledged so much, and not so many have acknowledged more.
Push2IsGreatestAck ==
    /\ push2 > 0 => Cardinality({p[1] : p \in {q \in Open : Acked(At(q)) >= push2}}) >= Replicas
    /\ Cardinality({p[1] : p \in {q \in Open : Acked(At(q)) > push2}}) < Replicas

\* Quirk 3: HA-G-5.  A put waits only if somebody has acknowledged something; HA-G-32: as many slaves as are needed.
OnlyReplicasAreWaitedFor ==
    [][waiting' \ waiting # {} => Cardinality({p[1] : p \in {q \in Open : HasAcked(At(q))}}) >= Replicas]_vars

\* Quirk 7: HA-M-12.  The request that a connection is served from is 0 or an offset of the log.
RequestIsServable ==
    [][\A s \in Slaves, k \in Slots : Kept(s, k) /\ conn[s][k].req = -1 =>
          LET r == conn'[s][k].req IN r \in {-1, 0} \/ (min <= r /\ r <= mmax)]_vars

\* A slave that is served, and takes all that it holds for its master's: in hardened, once the overlap has been compared (HA-S-62).
IsServed(s) == Live(s) # 0 /\ conn[s][Live(s)].req # -1 /\ slave[s].reported = MaxOffset(s)

\* Quirk 9, its first half: HA-M-11, HA-S-61.  A slave that is ahead of its master is not served as if it were level.
AheadIsNotServed == \A s \in Slaves : IsServed(s) => MaxOffset(s) <= mmax

\* Quirk 9, its second half: HA-S-62.  Once the master has grown past a slave that was ahead, no offset tells: bytes are compared.
DivergedIsNotServed ==
    \A s \in Slaves : IsServed(s) =>
        \A i \in 1..Len(slave[s].units) : LET o == slave[s].base + i IN o <= mmax => slave[s].units[i] = log[o]

\* Quirks 17 and 18: HA-S-11, HA-ST-7.  Units land at the offset of their frame: no gap, and no unit twice.
FrameLandsAtItsOffset ==
    [][\A s \in Slaves : Len(slave'[s].units) > Len(slave[s].units) =>
          LET f == conn[s][Live(s)].frames[1]
              end == slave'[s].base + Len(slave[s].units)
          IN  /\ slave'[s].base <= f.offset /\ f.offset <= end
              /\ \A i \in 1..Len(f.units) : f.units[i] = slave'[s].units[f.offset + i - slave'[s].base]]_vars

\* Quirk 17: HA-ST-7.  A slave without a whole unit has no files.
NoEmptyFile == \A s \in Slaves : slave[s].base # -1 => slave[s].units # <<>>

\* A slave differs from its master only in units that a master crash has lost: the master's are of a later epoch.
DiffersOnlyInLostUnits ==
    \A s \in Slaves : \A i \in 1..Len(slave[s].units) :
        LET o == slave[s].base + i IN o <= mmax => slave[s].units[i] <= log[o]

(* ---------------------- in both without master crashes; with them an exception in hardened (quirk 9) ------------------------ *)

\* The slave's units are the master's at those offsets, as far as the master has them.
SlaveHoldsPrefix ==
    \A s \in Slaves : \A i \in 1..Len(slave[s].units) :
        LET o == slave[s].base + i IN o <= mmax => slave[s].units[i] = log[o]

\* A master that lost its unflushed tail is behind its slave; nothing truncates the slave.  In hardened AheadIsNotServed.
SlaveNotAhead == \A s \in Slaves : MaxOffset(s) <= mmax

\* Whether a slave has the unit before offset o.
Holds(s, o) ==
    slave[s].base < o /\ o <= MaxOffset(s) /\ slave[s].base # -1 /\ slave[s].units[o - slave[s].base] = log[o]

\* The same for a sync put: at PUT_OK as many slaves as are needed (HA-G-30), one by default, hold the very unit.
PutOkIsHeld ==
    [][push2' > push2 => \A o \in waiting \ waiting' : Cardinality({s \in Slaves : Holds(s, o)}) >= Replicas]_vars

(* ------------------------------------------ exceptions in hardened too ------------------------------------------------------ *)

\* Slave crashes: an ack says appended, not flushed, and a stale connection's ack counts until it is reaped (HA-M-9).
Push2IsReached == push2 > 0 => Cardinality({s \in Slaves : MaxOffset(s) >= push2}) >= Replicas

\* HA-G-18: one slave is enough, unless more are asked for (HA-G-30).  At PUT_OK the others may have nothing of it.
PutOkIsHeldByAll == [][push2' > push2 => \A o \in waiting \ waiting' : \A s \in Slaves : Holds(s, o)]_vars

\* Quirk 8: HA-M-4.  A slave that asks for 0 gets the last file: to ask for the history the wire has no word.
HistoryNotSkipped == \A s \in Slaves : slave[s].base <= min

\* Quirk 7 again: HA-M-12 looks at the first report only; a file deleted under an open connection stalls it in hardened too.
NotStalled == \A p \in Open : ~At(p).stale /\ At(p).req # -1 => Start(At(p)) >= min

(* ---------------------------------------------------- liveness -------------------------------------------------------------- *)
(* Faults and puts are bounded and under no fairness.  Everything else is: weak fairness, but for what is sent: heartbeats keep   *)
(* taking the place in flight, so that a frame with data can be sent again and again, and not all the time.                      *)
(* No part of it is there for nothing: [[fairness]] in formal/scopes.toml says what fails without each, and TLC finds it.  *)

TransferLive(s) == Live(s) # 0 /\ Transfer(s, Live(s))
HeartbeatLive(s) == Live(s) # 0 /\ Heartbeat(s, Live(s))
DeliverReportsLive(s) == Live(s) # 0 /\ DeliverReports(s, Live(s))
ReapAny == \E s \in Slaves, k \in Slots : Reap(s, k)
TimeoutAny == \E o \in 1..MaxPuts : Timeout(o)

\* The fairness, but for one part; "Strong" leaves what is sent with weak fairness.
FairnessBut(one) ==
    /\ one # "Reap" => WF_vars(ReapAny)
    /\ one # "Timeout" => WF_vars(TimeoutAny)
    /\ \A s \in Slaves :
        /\ one # "Connect" => WF_vars(Connect(s))
        /\ one # "Report" => WF_vars(Report(s))
        /\ one # "DeliverReports" => WF_vars(DeliverReportsLive(s))
        /\ one # "Transfer" => WF_vars(TransferLive(s))
        /\ one \notin {"Transfer", "Strong"} => SF_vars(TransferLive(s))
        /\ one # "Heartbeat" => WF_vars(HeartbeatLive(s))
        /\ one # "DeliverFrames" => WF_vars(DeliverFrames(s))

Fairness == FairnessBut("none")
LinkFairness == FairnessBut("Timeout")

\* Level with the master; or without data, if the last file is empty: a request of 0 starts there (HA-M-4, quirk 8).
IsLevel(s) == MaxOffset(s) = mmax \/ (MaxOffset(s) = 0 /\ FileStart(mmax) = mmax)

CatchesUp == <>[](\A s \in Slaves : IsLevel(s))
AcksArrive == <>[](\A s \in Slaves : Live(s) # 0 /\ conn[s][Live(s)].ack = MaxOffset(s))
WaitersEnd == <>[](waiting = {})
StaleIsReaped == <>[](\A p \in Open : ~At(p).stale)

\* Under PatientSpec: a put that waits ends with PUT_OK.  No put has a deadline there, so nothing else can end it; faults are
\* bounded and slaves connect, so that at last there are no more faults and a slave is live.
WaitersAreAnswered == \A o \in 1..MaxPuts : o \in waiting ~> push2 >= o

(* ----------------------------------------------------- bounds --------------------------------------------------------------- *)
(* Constraints of the scopes that have everything in them: TLC goes on from a state only while they hold.                       *)

StepsAtMost_7 == TLCGet("level") <= 7
StepsAtMost_8 == TLCGet("level") <= 8
StepsAtMost_9 == TLCGet("level") <= 9
StepsAtMost_10 == TLCGet("level") <= 10
UsedAtMost_3 == used.puts + used.cuts + used.mcrashes + used.scrashes + used.deletes + used.forgeries <= 3
UsedAtMost_4 == used.puts + used.cuts + used.mcrashes + used.scrashes + used.deletes + used.forgeries <= 4

=============================================================================
