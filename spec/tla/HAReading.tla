----------------------------- MODULE HAReading -----------------------------
(* Reading, as spec/reading.md defines it: a consumer, a master and its slave; the slave learns topics and the offset of the     *)
(* consumer's group from the master, and both brokers may be lost, come back, or change places.                                  *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    MaxPuts, MaxLosses, MaxPromotions, MaxRestarts,
    Diverges,         \* whether messages may be lost that the slave does not have
    FromLast,         \* whether a consumer without an offset begins at the end                HA-C-10
    SlaveRead,        \* slaveReadEnable                                                       HA-R-22
    KeepsGreatest,    \* hardened: a slave does not lower its offset to the master's           HA-MD-32
    TellsMaster,      \* hardened: a slave tells its master what was committed to it           HA-MD-33
    KnowsTopics,      \* hardened: a topic that the log has is known                           HA-MD-35, HA-BT-18
    Holds,            \* hardened: a slave without its master holds a pull from beyond its log  HA-R-57
    Finishes          \* hardened: what was pulled is consumed, also after a correction        HA-C-14

Brokers == {1, 2}

VARIABLES
    master,     \* the broker of id 0
    up,         \* the brokers that run, and are in the route
    log,        \* log[b]: the messages of a broker
    topic,      \* topic[b]: whether its table has the topic
    offset,     \* offset[b]: of the group in its table, or -1
    told,       \* the master's offset as the slave was told it in the master's present life, or -1
    own,        \* whether the slave's offset was committed to the slave itself, and is beyond told
    consumer,   \* [at, held, entry, node]
    delivered,  \* messages that were consumed at least once
    done,       \* those of them that a committed offset was behind
    used        \* how often each bounded thing has happened

vars == <<master, up, log, topic, offset, told, own, consumer, delivered, done, used>>

(* ----------------------------------------------------- words ---------------------------------------------------------------- *)

Min(S) == CHOOSE m \in S : \A o \in S : m <= o
Range(s) == {s[i] : i \in 1..Len(s)}

slave == 3 - master
Both == up = Brokers

\* The messages that stand at the same offsets in both logs, from the first on.
Common == CHOOSE n \in 0..Len(log[1]) :
    /\ n <= Len(log[2]) /\ \A i \in 1..n : log[1][i] = log[2][i]
    /\ n < Len(log[1]) /\ n < Len(log[2]) => log[1][n + 1] # log[2][n + 1]

\* HA-C-14 "MUST NOT commit an offset in front of which a message is still to be consumed".
Position == Min({consumer.at} \union {h[1] : h \in Range(consumer.held)})

\* HA-R-25 "A consumer whose broker of the suggested id is not in the route MUST pull from another broker of the same
\* brokerName".  0: there is none.
OfId(id) ==
    LET wanted == IF id = 0 THEN master ELSE slave
    IN  IF wanted \in up THEN wanted ELSE IF 3 - wanted \in up THEN 3 - wanted ELSE 0

Knows(b) == topic[b] \/ (KnowsTopics /\ log[b] # <<>>)

Covers(b, o) == {m \in delivered : \E i \in 1..Len(log[b]) : i <= o /\ log[b][i] = m}

(* ----------------------------------------------------- brokers -------------------------------------------------------------- *)

Init ==
    /\ master = 1 /\ up = Brokers
    /\ log = [b \in Brokers |-> <<>>] /\ topic = [b \in Brokers |-> FALSE]
    /\ offset = [b \in Brokers |-> IF FromLast /\ b = 1 THEN 0 ELSE -1]
    /\ told = -1 /\ own = FALSE
    /\ consumer = [at |-> 0, held |-> <<>>, entry |-> FromLast, node |-> 0]
    /\ delivered = {} /\ done = {}
    /\ used = [puts |-> 0, losses |-> 0, promotions |-> 0, restarts |-> 0]

Put ==
    /\ master \in up /\ used.puts < MaxPuts
    /\ log' = [log EXCEPT ![master] = Append(@, used.puts + 1)]
    /\ topic' = [topic EXCEPT ![master] = TRUE]
    /\ used' = [used EXCEPT !.puts = @ + 1]
    /\ UNCHANGED <<master, up, offset, told, own, consumer, delivered, done>>

Replicate ==
    /\ Both /\ Len(log[slave]) < Len(log[master])
    /\ log' = [log EXCEPT ![slave] = Append(@, log[master][Len(@) + 1])]
    /\ UNCHANGED <<master, up, topic, offset, told, own, consumer, delivered, done, used>>

\* HA-MD-10 "MUST replace all topics of the slave".
TakeTopics ==
    /\ Both
    /\ topic' = [topic EXCEPT ![slave] = topic[master]]
    /\ topic' # topic
    /\ UNCHANGED <<master, up, log, offset, told, own, consumer, delivered, done, used>>

\* HA-MD-13 "MUST be merged into the slave's table, whatever it has".
TakeAnyOffset ==
    /\ offset[master] # -1
    /\ offset' = [offset EXCEPT ![slave] = offset[master]]
    /\ UNCHANGED <<told, own>>

\* What the slave tells its master is taken, if at all, before the master answers.
IsTaken == own /\ offset[master] = told /\ offset[slave] <= Len(log[master])

KeepGreatestOffset ==
    LET theirs == IF IsTaken THEN offset[slave] ELSE offset[master]
        mine == IF theirs < told \/ offset[slave] < theirs THEN theirs ELSE offset[slave]
    IN  /\ offset' = [b \in Brokers |-> IF b = master THEN theirs ELSE mine]
        /\ told' = theirs
        /\ own' = (own /\ mine > theirs)

TakeOffsets ==
    /\ Both
    /\ IF KeepsGreatest THEN KeepGreatestOffset ELSE TakeAnyOffset
    /\ <<offset', told', own'>> # <<offset, told, own>>
    /\ UNCHANGED <<master, up, log, topic, consumer, delivered, done, used>>

Lose(b) ==
    /\ b \in up /\ used.losses < MaxLosses
    /\ up' = up \ {b}
    /\ IF b = master /\ Diverges
       THEN \E n \in 0..Len(log[b]) : (n >= Len(log[slave]) \/ n = Len(log[b])) /\ log' = [log EXCEPT ![b] = SubSeq(@, 1, n)]
       ELSE UNCHANGED log
    /\ told' = -1
    /\ own' = (own /\ b = master)
    /\ used' = [used EXCEPT !.losses = @ + 1]
    /\ UNCHANGED <<master, topic, offset, consumer, delivered, done>>

Return(b) ==
    /\ b \notin up
    /\ up' = up \union {b}
    /\ log' = IF b = master THEN log ELSE [log EXCEPT ![b] = SubSeq(@, 1, Common)]
    /\ UNCHANGED <<master, topic, offset, told, own, consumer, delivered, done, used>>

Promote ==
    /\ master \notin up /\ slave \in up /\ used.promotions < MaxPromotions
    /\ Diverges \/ log[1] = log[2]
    /\ master' = slave
    /\ topic' = [topic EXCEPT ![slave] = Knows(slave)]
    /\ told' = -1 /\ own' = FALSE
    /\ used' = [used EXCEPT !.promotions = @ + 1]
    /\ UNCHANGED <<up, log, offset, consumer, delivered, done>>

(* ----------------------------------------------------- the consumer --------------------------------------------------------- *)

Asked == OfId(consumer.node)

\* What the answers make of the consumer, by what it finds in the queue.  HA-R-20: each suggests where to pull next.
Found(b) ==
    LET next == [consumer EXCEPT !.at = @ + 1, !.held = Append(@, <<consumer.at, log[b][consumer.at + 1]>>)]
        nodes == IF SlaveRead /\ consumer.at + 1 < Len(log[b]) THEN {0, 1} ELSE {0}
    IN  {[next EXCEPT !.node = id] : id \in nodes}
Nothing == [consumer EXCEPT !.node = 0, !.entry = @ \/ consumer.held = <<>>]
Corrected(b) ==
    IF Finishes
    THEN [consumer EXCEPT !.node = 0, !.at = Len(log[b])]
    ELSE [at |-> Len(log[b]), held |-> <<>>, entry |-> TRUE, node |-> 0]

\* HA-R-26, HA-R-31: the answer to a pull.  The answer 17, without the topic, changes nothing.
PullFound(b) ==
    /\ consumer.at < Len(log[b])
    /\ consumer' \in Found(b)
    /\ UNCHANGED <<offset, done>>
PullNothing(b) ==
    /\ consumer.at = Len(log[b]) \/ (consumer.at > Len(log[b]) /\ b = slave)
    /\ consumer' = Nothing
    /\ consumer' # consumer
    /\ UNCHANGED <<offset, done>>
PullCorrected(b) ==
    /\ consumer.at > Len(log[b]) /\ b = master
    /\ consumer' = Corrected(b)
    /\ IF Finishes
       THEN UNCHANGED <<offset, done>>
       ELSE /\ offset' = [offset EXCEPT ![b] = Len(log[b])]
            /\ done' = done \union Covers(b, Len(log[b]))

Pull ==
    /\ Asked # 0 /\ Knows(Asked)
    /\ PullFound(Asked) \/ PullNothing(Asked) \/ PullCorrected(Asked)
    /\ UNCHANGED <<master, up, log, topic, told, own, delivered, used>>

Deliver ==
    /\ consumer.held # <<>>
    /\ consumer' = [consumer EXCEPT !.held = Tail(@), !.entry = TRUE]
    /\ delivered' = delivered \union {Head(consumer.held)[2]}
    /\ UNCHANGED <<master, up, log, topic, offset, told, own, done, used>>

\* HA-C-14 "to the broker of id 0 or, where there is none, to another of the group".  HA-BT-30 "MUST store the offset whatever it
\* is".
Commit ==
    /\ consumer.entry /\ OfId(0) # 0
    /\ LET b == OfId(0)
       IN  /\ offset' = [offset EXCEPT ![b] = Position]
           /\ done' = done \union Covers(b, Position)
           /\ own' = (own \/ (TellsMaster /\ b = slave))
    /\ <<offset', done', own'>> # <<offset, done, own>>
    /\ UNCHANGED <<master, up, log, topic, told, consumer, delivered, used>>

\* HA-C-10 "MUST begin a queue at the offset that the broker has of its group".
Restart ==
    /\ used.restarts < MaxRestarts /\ OfId(0) # 0
    /\ LET b == OfId(0)
       IN  /\ offset[b] = -1 /\ FromLast => b = master
           /\ consumer' = [at |-> IF offset[b] # -1 THEN offset[b] ELSE IF FromLast THEN Len(log[b]) ELSE 0,
                           held |-> <<>>, entry |-> offset[b] # -1, node |-> 0]
    /\ used' = [used EXCEPT !.restarts = @ + 1]
    /\ UNCHANGED <<master, up, log, topic, offset, told, own, delivered, done>>

(* ----------------------------------------------------- labels --------------------------------------------------------------- *)
(* TLC labels an edge of its dump with the innermost operator that is not a mere call of another; see HA.tla.                    *)

Lose_1 == 1 \in Brokers /\ Lose(1)
Lose_2 == 2 \in Brokers /\ Lose(2)
Return_1 == 1 \in Brokers /\ Return(1)
Return_2 == 2 \in Brokers /\ Return(2)

Next ==
    \/ Put \/ Replicate \/ TakeTopics \/ TakeOffsets \/ Lose_1 \/ Lose_2 \/ Return_1 \/ Return_2 \/ Promote
    \/ Pull \/ Deliver \/ Commit \/ Restart

Spec == Init /\ [][Next]_vars

(* ----------------------------------------------------- types ---------------------------------------------------------------- *)

Messages == 1..used.puts

IsOffset(o) == o \in 0..MaxPuts

TypeOK ==
    /\ master \in Brokers /\ up \subseteq Brokers
    /\ \A b \in Brokers : Range(log[b]) \subseteq Messages /\ Cardinality(Range(log[b])) = Len(log[b])
    /\ topic \in [Brokers -> BOOLEAN]
    /\ \A b \in Brokers : offset[b] = -1 \/ IsOffset(offset[b])
    /\ told = -1 \/ IsOffset(told)
    /\ ~KeepsGreatest => told = -1
    /\ own \in BOOLEAN /\ (own => TellsMaster /\ offset[slave] > told)
    /\ DOMAIN consumer = {"at", "held", "entry", "node"}
    /\ IsOffset(consumer.at) /\ consumer.entry \in BOOLEAN /\ consumer.node \in {0, 1}
    /\ \A h \in Range(consumer.held) : IsOffset(h[1]) /\ h[2] \in Messages
    /\ done \subseteq delivered /\ delivered \subseteq Messages
    /\ used \in [puts: 0..MaxPuts, losses: 0..MaxLosses, promotions: 0..MaxPromotions, restarts: 0..MaxRestarts]
    \* While both run the slave's log is the beginning of the master's.
    /\ Both => Len(log[slave]) <= Len(log[master]) /\ \A i \in 1..Len(log[slave]) : log[slave][i] = log[master][i]

(* ----------------------------------------------------- properties of states ------------------------------------------------- *)

Stands(m, b) == m \in Range(log[b])
OffsetOf(m, b) == (CHOOSE i \in 1..Len(log[b]) : log[b][i] = m) - 1

\* Quirks 46, 47 and 48.  No offset is in front of a message that was not delivered.
CommittedIsDelivered == \A b \in Brokers : \A i \in 1..Len(log[b]) : i <= offset[b] => log[b][i] \in delivered

\* Quirks 46, 47 and 48.  What both logs have comes to the consumer, or can still come.
Skipped(i) ==
    /\ log[1][i] \notin delivered \union {h[2] : h \in Range(consumer.held)}
    /\ i <= consumer.at
    /\ \E b \in Brokers : offset[b] # -1
    /\ \A b \in Brokers : offset[b] # -1 => i <= offset[b]
NothingIsSkipped == \A i \in 1..Common : ~Skipped(i)

\* Quirk 44: HA-BT-18 "MUST add the topics of its consume queues".
TopicIsKnown == master \in up /\ log[master] # <<>> => topic[master]

\* Quirk 44: HA-MD-35.
TopicIsRead == \A b \in up : log[b] # <<>> => Knows(b)

\* Quirk 43: HA-MD-32, HA-MD-33.
DoneIsNotForgotten ==
    \A m \in done : (\E b \in Brokers : Stands(m, b)) => \E b \in Brokers : Stands(m, b) /\ offset[b] > OffsetOf(m, b)

\* Quirk 43: HA-MD-33.  Once the slave has nothing more to tell or to take, a consumer that begins at the master gets nothing again.
MasterIsTold ==
    Both /\ ~ENABLED TakeOffsets => \A m \in done : Stands(m, master) => offset[master] > OffsetOf(m, master)

\* What a slave keeps beside its master's offset (HA-MD-32) is of messages that were delivered.
KeptIsDelivered ==
    Both => \A i \in 1..Len(log[slave]) : offset[master] < i /\ i <= offset[slave] => log[slave][i] \in delivered

\* Quirk 45: HA-R-57.  The consumers that the answers which come at once lead to, and that ask again at once.
AskAgain(b) ==
    (IF consumer.at < Len(log[b]) THEN Found(b) ELSE {})
    \union (IF consumer.at > Len(log[b]) /\ b = slave /\ ~(Holds /\ master \notin up) THEN {Nothing} ELSE {})
    \union (IF consumer.at > Len(log[b]) /\ b = master THEN {Corrected(b)} ELSE {})
NotSpinning == Asked # 0 /\ Knows(Asked) => consumer \notin AskAgain(Asked)

(* ----------------------------------------------------- properties of steps -------------------------------------------------- *)

\* Told by what only one action changes: `at` changes in a Pull, and in a Restart, which counts; a Deliver leaves it as it is.
IsPull == consumer'.at # consumer.at /\ used' = used
IsDeliver == consumer.held # <<>> /\ consumer' = [consumer EXCEPT !.held = Tail(@), !.entry = TRUE] /\ used' = used

\* Quirk 46: HA-C-14.
PulledIsKept ==
    [][IsPull => \A h \in Range(consumer.held) : Stands(h[2], Asked) => h \in Range(consumer'.held)]_vars

\* Quirk 43: HA-MD-32 "unless the master itself has gone back".
TakenOffsetIsNoLess ==
    [][Both /\ offset'[slave] < offset[slave] => offset'[master] < told]_vars

\* What a master takes from its slave (HA-MD-33) is of messages that were delivered.  No other action moves the offset of a master
\* forwards while nobody is asked: a Commit is the consumer's, and so is a Pull.
ToldIsDelivered ==
    [][Both /\ told' # told /\ offset'[master] > offset[master]
        => \A i \in 1..Len(log[master]) : offset[master] < i /\ i <= offset'[master] => log[master][i] \in delivered]_vars

\* Quirk 43.  It holds in neither profile where consumers restart: the slave may not have told its master yet.
DoneIsNotDeliveredAgain ==
    [][IsDeliver => Head(consumer.held)[2] \notin done]_vars

=============================================================================
