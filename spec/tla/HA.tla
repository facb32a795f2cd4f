--------------------------------- MODULE HA ---------------------------------
(* The whole: one operator an edge label, the next-state relation, and the specification.                                       *)
(* TLC labels an edge of its dump with the innermost operator that is not a mere call of another, and leaves parameters out.    *)
(* So each value of the parameters has an operator of its own here, and a conjunct in front that keeps it from being a mere     *)
(* call; it also says that slaves 2 and 3 are in scope, if they are.  formal/dump.py reads Send_1_2 as Send(1,2).                    *)
EXTENDS HAProperties

ASSUME Slaves \in {{1}, {1, 2}, {1, 2, 3}} /\ MaxPuts <= 6    \* or Next below misses some

On(s) == s \in Slaves
Puts(o) == o <= MaxPuts

Timeout_1 == Puts(1) /\ Timeout(1)
Timeout_2 == Puts(2) /\ Timeout(2)
Timeout_3 == Puts(3) /\ Timeout(3)
Timeout_4 == Puts(4) /\ Timeout(4)
Timeout_5 == Puts(5) /\ Timeout(5)
Timeout_6 == Puts(6) /\ Timeout(6)

Connect_1 == On(1) /\ Connect(1)
Connect_2 == On(2) /\ Connect(2)
Connect_3 == On(3) /\ Connect(3)

Report_1 == On(1) /\ Report(1)
Report_2 == On(2) /\ Report(2)
Report_3 == On(3) /\ Report(3)

Forge_1 == On(1) /\ Forge(1)
Forge_2 == On(2) /\ Forge(2)
Forge_3 == On(3) /\ Forge(3)

RecvReport_1_1 == On(1) /\ RecvReport(1, 1)
RecvReport_1_2 == On(1) /\ RecvReport(1, 2)
RecvReport_2_1 == On(2) /\ RecvReport(2, 1)
RecvReport_2_2 == On(2) /\ RecvReport(2, 2)
RecvReport_3_1 == On(3) /\ RecvReport(3, 1)
RecvReport_3_2 == On(3) /\ RecvReport(3, 2)

Begin_1_1 == On(1) /\ Begin(1, 1)
Begin_1_2 == On(1) /\ Begin(1, 2)
Begin_2_1 == On(2) /\ Begin(2, 1)
Begin_2_2 == On(2) /\ Begin(2, 2)
Begin_3_1 == On(3) /\ Begin(3, 1)
Begin_3_2 == On(3) /\ Begin(3, 2)

Send_1_1 == On(1) /\ Send(1, 1)
Send_1_2 == On(1) /\ Send(1, 2)
Send_2_1 == On(2) /\ Send(2, 1)
Send_2_2 == On(2) /\ Send(2, 2)
Send_3_1 == On(3) /\ Send(3, 1)
Send_3_2 == On(3) /\ Send(3, 2)

Heartbeat_1_1 == On(1) /\ Heartbeat(1, 1)
Heartbeat_1_2 == On(1) /\ Heartbeat(1, 2)
Heartbeat_2_1 == On(2) /\ Heartbeat(2, 1)
Heartbeat_2_2 == On(2) /\ Heartbeat(2, 2)
Heartbeat_3_1 == On(3) /\ Heartbeat(3, 1)
Heartbeat_3_2 == On(3) /\ Heartbeat(3, 2)

RecvFrame_1 == On(1) /\ RecvFrame(1)
RecvFrame_2 == On(2) /\ RecvFrame(2)
RecvFrame_3 == On(3) /\ RecvFrame(3)

Drop_1 == On(1) /\ Drop(1)
Drop_2 == On(2) /\ Drop(2)
Drop_3 == On(3) /\ Drop(3)

DropUnseen_1 == On(1) /\ DropUnseen(1)
DropUnseen_2 == On(2) /\ DropUnseen(2)
DropUnseen_3 == On(3) /\ DropUnseen(3)

Reap_1_1 == On(1) /\ Reap(1, 1)
Reap_1_2 == On(1) /\ Reap(1, 2)
Reap_2_1 == On(2) /\ Reap(2, 1)
Reap_2_2 == On(2) /\ Reap(2, 2)
Reap_3_1 == On(3) /\ Reap(3, 1)
Reap_3_2 == On(3) /\ Reap(3, 2)

SlaveCrash_1 == On(1) /\ SlaveCrash(1)
SlaveCrash_2 == On(2) /\ SlaveCrash(2)
SlaveCrash_3 == On(3) /\ SlaveCrash(3)

Next ==
    \/ Put \/ PutSync \/ Timeout_1 \/ Timeout_2 \/ Timeout_3 \/ Timeout_4 \/ Timeout_5 \/ Timeout_6 \/ Flush \/ Delete \/ MasterCrash
    \/ Connect_1 \/ Report_1 \/ Forge_1 \/ RecvFrame_1 \/ Drop_1 \/ DropUnseen_1 \/ SlaveCrash_1
    \/ RecvReport_1_1 \/ Begin_1_1 \/ Send_1_1 \/ Heartbeat_1_1 \/ Reap_1_1
    \/ RecvReport_1_2 \/ Begin_1_2 \/ Send_1_2 \/ Heartbeat_1_2 \/ Reap_1_2
    \/ Connect_2 \/ Report_2 \/ Forge_2 \/ RecvFrame_2 \/ Drop_2 \/ DropUnseen_2 \/ SlaveCrash_2
    \/ RecvReport_2_1 \/ Begin_2_1 \/ Send_2_1 \/ Heartbeat_2_1 \/ Reap_2_1
    \/ RecvReport_2_2 \/ Begin_2_2 \/ Send_2_2 \/ Heartbeat_2_2 \/ Reap_2_2
    \/ Connect_3 \/ Report_3 \/ Forge_3 \/ RecvFrame_3 \/ Drop_3 \/ DropUnseen_3 \/ SlaveCrash_3
    \/ RecvReport_3_1 \/ Begin_3_1 \/ Send_3_1 \/ Heartbeat_3_1 \/ Reap_3_1
    \/ RecvReport_3_2 \/ Begin_3_2 \/ Send_3_2 \/ Heartbeat_3_2 \/ Reap_3_2

(* A warm start spends the bounds of a scope on what comes once a slave counts: one unit is put, and every slave has it and has    *)
(* acknowledged it.  (This state is reached from Init too; a test goes there.)                                                  *)
WarmInit ==
    /\ log = <<0>> /\ flushed = 0 /\ min = 0 /\ epoch = 0 /\ waiting = {}
    /\ conn = [s \in Slaves |-> [k \in Slots |-> IF k = 1 THEN [Connection(<<>>) EXCEPT !.req = 0, !.ack = 1, !.start = 0, !.next = 1]
                                                ELSE NONE]]
    /\ push2 = Acknowledged(conn)
    /\ slave = [s \in Slaves |-> [base |-> 0, units |-> <<0>>, slot |-> 1, reported |-> 1, flushed |-> IF AcksFlushed THEN 1 ELSE 0]]
    /\ used = [puts |-> 1, drops |-> 0, mcrashes |-> 0, scrashes |-> 0, deletes |-> 0, forgeries |-> 0]

Spec == Init /\ [][Next]_vars
WarmSpec == WarmInit /\ [][Next]_vars

FairSpec == Spec /\ Fairness
WarmFairSpec == WarmSpec /\ Fairness

\* No put gives up: a step by which one ends without an ack is none of these runs.
Patient == push2' = push2 /\ epoch' = epoch => waiting \subseteq waiting'
PatientSpec == WarmInit /\ [][Next /\ Patient]_vars /\ LinkFairness

(* Fairness without one of its parts: scopes.toml has a table [[fairness]] for each, with the property that then fails.         *)
WithoutReap == Spec /\ FairnessBut("Reap")
WithoutTimeout == Spec /\ FairnessBut("Timeout")
WithoutConnect == Spec /\ FairnessBut("Connect")
WithoutReport == Spec /\ FairnessBut("Report")
WithoutRecvReport == Spec /\ FairnessBut("RecvReport")
WithoutSend == Spec /\ FairnessBut("Send")
WithoutStrong == Spec /\ FairnessBut("Strong")
WithoutHeartbeat == Spec /\ FairnessBut("Heartbeat")
WithoutRecvFrame == Spec /\ FairnessBut("RecvFrame")

=============================================================================
