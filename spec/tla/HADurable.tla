------------------------------ MODULE HADurable ------------------------------
(* What is left when the master and its disk are gone: the log of the best slave, the one with the greatest max offset.         *)
(* HA forgets a put that has ended.  Here `acked` remembers those that ended with PUT_OK; nothing else changes.                  *)
EXTENDS HA

VARIABLE acked    \* <<next offset, unit>> of each put that ended with PUT_OK

\* HA-G-1: what a report releases.  A timeout and the end of the master leave push2 below what ends.
Remember == acked' = acked \union {<<o, log[o]>> : o \in {w \in waiting \ waiting' : w <= push2'}}

Step == Next /\ Remember

DurableSpec == Init /\ acked = {} /\ [][Step]_<<vars, acked>>
WarmDurableSpec == WarmInit /\ acked = {} /\ [][Step]_<<vars, acked>>

\* An operator who must choose a slave looks at max offsets, and at nothing else.
Best == {s \in Slaves : \A t \in Slaves : MaxOffset(t) <= MaxOffset(s)}

\* HA-G-18, HA-G-30.  Whichever of the best slaves is taken, it has every unit whose put ended with PUT_OK.
AckedIsInBestLog ==
    \A s \in Best : \A a \in acked :
        /\ slave[s].base # -1 /\ slave[s].base < a[1] /\ a[1] <= MaxOffset(s)
        /\ slave[s].units[a[1] - slave[s].base] = a[2]

\* Of the puts that did not wait: what the best slave lacks is what lies beyond its max offset, and nothing else.
LostIsBeyondBestLog ==
    \A s \in Best : slave[s].base <= 0 /\ \A o \in 1..Least(mmax, MaxOffset(s)) : slave[s].units[o] = log[o]

\* That nothing is lost at all: false as soon as a put does not wait (the bound is what the violation shows).
NothingIsLost == \A s \in Best : MaxOffset(s) >= mmax

=============================================================================
