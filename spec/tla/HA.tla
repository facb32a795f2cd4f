--------------------------------- MODULE HA ---------------------------------
(* The whole: one operator an edge label, the next-state relation, and the specification.                                       *)
(* TLC labels an edge of its dump with the innermost operator that is not a mere call of another, and leaves parameters out.    *)
(* So each value of the parameters has an operator of its own here, and a conjunct in front that keeps it from being a mere     *)
(* call; it also says that slaves 2 and 3 are in scope, if they are.  formal/dump.py reads Transfer_1_2 as Transfer(1,2).       *)
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

ForgeReport_1 == On(1) /\ ForgeReport(1)
ForgeReport_2 == On(2) /\ ForgeReport(2)
ForgeReport_3 == On(3) /\ ForgeReport(3)

DeliverReports_1_1 == On(1) /\ DeliverReports(1, 1)
DeliverReports_1_2 == On(1) /\ DeliverReports(1, 2)
DeliverReports_2_1 == On(2) /\ DeliverReports(2, 1)
DeliverReports_2_2 == On(2) /\ DeliverReports(2, 2)
DeliverReports_3_1 == On(3) /\ DeliverReports(3, 1)
DeliverReports_3_2 == On(3) /\ DeliverReports(3, 2)

Begin_1_1 == On(1) /\ Begin(1, 1)
Begin_1_2 == On(1) /\ Begin(1, 2)
Begin_2_1 == On(2) /\ Begin(2, 1)
Begin_2_2 == On(2) /\ Begin(2, 2)
Begin_3_1 == On(3) /\ Begin(3, 1)
Begin_3_2 == On(3) /\ Begin(3, 2)

Transfer_1_1 == On(1) /\ Transfer(1, 1)
Transfer_1_2 == On(1) /\ Transfer(1, 2)
Transfer_2_1 == On(2) /\ Transfer(2, 1)
Transfer_2_2 == On(2) /\ Transfer(2, 2)
Transfer_3_1 == On(3) /\ Transfer(3, 1)
Transfer_3_2 == On(3) /\ Transfer(3, 2)

Heartbeat_1_1 == On(1) /\ Heartbeat(1, 1)
Heartbeat_1_2 == On(1) /\ Heartbeat(1, 2)
Heartbeat_2_1 == On(2) /\ Heartbeat(2, 1)
Heartbeat_2_2 == On(2) /\ Heartbeat(2, 2)
Heartbeat_3_1 == On(3) /\ Heartbeat(3, 1)
Heartbeat_3_2 == On(3) /\ Heartbeat(3, 2)

DeliverFrames_1 == On(1) /\ DeliverFrames(1)
DeliverFrames_2 == On(2) /\ DeliverFrames(2)
DeliverFrames_3 == On(3) /\ DeliverFrames(3)

Cut_1 == On(1) /\ Cut(1)
Cut_2 == On(2) /\ Cut(2)
Cut_3 == On(3) /\ Cut(3)

CutUnseen_1 == On(1) /\ CutUnseen(1)
CutUnseen_2 == On(2) /\ CutUnseen(2)
CutUnseen_3 == On(3) /\ CutUnseen(3)

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
    \/ Connect_1 \/ Report_1 \/ ForgeReport_1 \/ DeliverFrames_1 \/ Cut_1 \/ CutUnseen_1 \/ SlaveCrash_1
    \/ DeliverReports_1_1 \/ Begin_1_1 \/ Transfer_1_1 \/ Heartbeat_1_1 \/ Reap_1_1
    \/ DeliverReports_1_2 \/ Begin_1_2 \/ Transfer_1_2 \/ Heartbeat_1_2 \/ Reap_1_2
    \/ Connect_2 \/ Report_2 \/ ForgeReport_2 \/ DeliverFrames_2 \/ Cut_2 \/ CutUnseen_2 \/ SlaveCrash_2
    \/ DeliverReports_2_1 \/ Begin_2_1 \/ Transfer_2_1 \/ Heartbeat_2_1 \/ Reap_2_1
    \/ DeliverReports_2_2 \/ Begin_2_2 \/ Transfer_2_2 \/ Heartbeat_2_2 \/ Reap_2_2
    \/ Connect_3 \/ Report_3 \/ ForgeReport_3 \/ DeliverFrames_3 \/ Cut_3 \/ CutUnseen_3 \/ SlaveCrash_3
    \/ DeliverReports_3_1 \/ Begin_3_1 \/ Transfer_3_1 \/ Heartbeat_3_1 \/ Reap_3_1
    \/ DeliverReports_3_2 \/ Begin_3_2 \/ Transfer_3_2 \/ Heartbeat_3_2 \/ Reap_3_2

(* A warm start spends the bounds of a scope on what comes once a slave counts: one unit is put, and every slave has it and has    *)
(* acknowledged it.  (This state is reached from Init too; a test goes there.)                                                  *)
WarmInit ==
    /\ log = <<0>> /\ flushed = 0 /\ min = 0 /\ epoch = 0 /\ waiting = {}
    /\ conn = [s \in Slaves |-> [k \in Slots |-> IF k = 1 THEN [Connection(<<>>) EXCEPT !.req = 0, !.ack = 1, !.start = 0, !.next = 1]
                                                ELSE NONE]]
    /\ push2 = Acknowledged(conn)
    /\ slave = [s \in Slaves |-> [base |-> 0, units |-> <<0>>, slot |-> 1, reported |-> 1, flushed |-> IF AcksFlushed THEN 1 ELSE 0]]
    /\ used = [puts |-> 1, cuts |-> 0, mcrashes |-> 0, scrashes |-> 0, deletes |-> 0, forgeries |-> 0]

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
WithoutDeliverReports == Spec /\ FairnessBut("DeliverReports")
WithoutTransfer == Spec /\ FairnessBut("Transfer")
WithoutStrong == Spec /\ FairnessBut("Strong")
WithoutHeartbeat == Spec /\ FairnessBut("Heartbeat")
WithoutDeliverFrames == Spec /\ FairnessBut("DeliverFrames")

=============================================================================
