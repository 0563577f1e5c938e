/* One attempt on one link that breaks: verify or restart.
 *
 * The sender makes K outputs in order, at most WINDOW ahead of what it knows was taken, and keeps
 * the last RETAIN of them. Its connections are numbered; a broken one may still deliver what was
 * sent on it, late, until the receiver has shut it out. Once, a frame may arrive with other content
 * that its checksum does not show (TAMPER), and once a step is sent again (a copy). The receiver
 * may lose the attempt at any time, by a fence or a crash.
 *
 * A hash chain is modelled as the list of contents itself: equal chains are equal histories.
 * Every guard can be taken out with -DNO_<GUARD>; -DNO_RESUME leaves the whole mechanism out and
 * must leave every assertion true. */
#ifndef K
#define K 3
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef RETAIN
#define RETAIN 2
#endif
#ifndef CONNECTIONS
#define CONNECTIONS 3
#endif

mtype = { HELLO, INSPECT, STEP };
mtype = { UP, ASKED, RESTARTED };

chan wire[CONNECTIONS] = [K + 4] of { mtype, byte, byte, byte };  /* Step, content, chain before. */
chan answer[CONNECTIONS] = [1] of { byte, byte, bool };           /* Next, chain, open. */

/* Sender. chain_at[k]: of steps 1..k. */
mtype mode = UP;
byte connection = 0, made = 0, returned = 0;
byte content[K + 1], chain_at[K + 1];
bool tampered, copied;

/* Receiver. */
byte newest = 0, step_next = 1, chain = 1;
byte taken[K + 1];
bool is_open = 1, conflict = 0;

#define EXTENDED(chain_, content_) ((chain_) * 2 + (content_))

#ifdef NO_CONNECTION_FENCE
#define HEARD(g) (1)
#else
#define HEARD(g) ((g) >= newest)
#endif
#ifdef NO_CHAIN_ON_STEP
#define CHAIN_AGREES(c) (1)
#else
#define CHAIN_AGREES(c) ((c) == chain)
#endif
#ifdef NO_DIGEST
#define SAME_CONTENT(k, c) (1)
#else
#define SAME_CONTENT(k, c) (taken[k] == (c))
#endif
#ifdef NO_CHAIN_IN_STATUS
#define HISTORY_AGREES(next_, chain_) (1)
#else
#define HISTORY_AGREES(next_, chain_) (chain_at[(next_) - 1] == (chain_))
#endif
#ifdef NO_RETENTION_CHECK
#define STILL_HELD(next_) (1)
#else
#define STILL_HELD(next_) ((next_) + RETAIN > made)
#endif
#define HELD_FROM(next_) ((next_) + RETAIN > made -> (next_) : made + 1 - RETAIN)

inline transmit(k_) {
  if
  :: wire[connection]!STEP, k_, content[k_], chain_at[k_ - 1]
#ifdef TAMPER
  :: !tampered -> tampered = 1; wire[connection]!STEP, k_, 1 - content[k_], chain_at[k_ - 1]
#endif
  fi
}

proctype Sender() {
  byte next_, chain_, k;
  bool open_;
end:
  do
  /* A step's output. While the link is in doubt it is only retained. */
  :: atomic { mode != RESTARTED && made < K && made < returned + WINDOW ->
       made++;
       if :: content[made] = 0 :: content[made] = 1 fi;
       chain_at[made] = EXTENDED(chain_at[made - 1], content[made]);
       if :: mode == UP -> transmit(made) :: else fi }
  /* The ring has brought the step round: whoever is upstream may start another. */
  :: atomic { mode != RESTARTED && returned + 1 < step_next -> returned++ }
  :: atomic { mode == UP && made > 0 && !copied -> copied = 1; transmit(made) }
  /* Reset: a new connection, which asks before it sends. */
  :: atomic { mode != RESTARTED && connection + 1 < CONNECTIONS ->
#ifdef NO_RESUME
       mode = RESTARTED
#else
       connection++; mode = ASKED;
       wire[connection]!HELLO, 0, 0, 0; wire[connection]!INSPECT, 0, 0, 0
#endif
     }
  :: atomic { mode == ASKED && answer[connection]?[next_, chain_, open_] ->
       answer[connection]?next_, chain_, open_;
       if
       :: open_ && STILL_HELD(next_) && HISTORY_AGREES(next_, chain_) ->
            assert(step_next == next_ || !is_open);    /* Nothing slipped in behind the answer. */
            assert(chain_at[next_ - 1] == chain_);
            mode = UP;
            /* What certainly was not taken may be made anew. */
            if
            :: next_ == made && STILL_HELD(next_) ->
                 content[made] = 1 - content[made];
                 chain_at[made] = EXTENDED(chain_at[made - 1], content[made])
            :: skip
            fi;
            k = HELD_FROM(next_);
            do :: k <= made -> wire[connection]!STEP, k, content[k], chain_at[k - 1]; k++
               :: else -> break
            od
#ifdef SEEN_RESUME
            ; assert(next_ > made)
#endif
       :: else ->
            mode = RESTARTED;
#ifdef SEEN_UNCERTAIN
            assert(0);
#endif
            assert(!open_ || tampered)       /* A reset alone never costs a restart. */
       fi;
       next_ = 0; chain_ = 0; open_ = 0; k = 0 }
#ifdef IMPATIENT
  :: atomic { mode == ASKED -> mode = RESTARTED }      /* No answer within the resume timeout. */
#endif
  od
}

inline end_attempt() { conflict = 1; is_open = 0 }

inline take(k_, content_, before_) {
  if
  :: !is_open                              /* Stale: nothing changes. */
  :: is_open && k_ < step_next ->
       if :: SAME_CONTENT(k_, content_) -> assert(taken[k_] == content_)  /* The old answer. */
          :: else -> end_attempt()
       fi
  :: is_open && k_ > step_next -> assert(tampered); end_attempt()         /* A gap. */
  :: is_open && k_ == step_next ->
       if :: CHAIN_AGREES(before_) ->
             assert(chain == chain_at[k_ - 1]);  /* Both ends have one history. */
             taken[k_] = content_; chain = EXTENDED(chain, content_); step_next++;
             assert(taken[k_] == content[k_] || tampered)
          :: else -> end_attempt()
       fi
  fi
}

proctype Receiver(byte g) {
  byte k, c, before;
  bool shut = 0;
end:
  do
  :: atomic { HEARD(g) && wire[g]?[HELLO, k, c, before] ->
       wire[g]?HELLO, k, c, before;
#ifndef NO_FENCE_BEFORE_ANSWER
       newest = (g > newest -> g : newest)
#endif
     }
  :: atomic { HEARD(g) && wire[g]?[INSPECT, k, c, before] ->
       wire[g]?INSPECT, k, c, before; answer[g]!step_next, chain, is_open; shut = 1 }
#ifdef NO_FENCE_BEFORE_ANSWER
  :: atomic { shut && g > newest -> newest = g }
#endif
  :: atomic { HEARD(g) && wire[g]?[STEP, k, c, before] ->
       wire[g]?STEP, k, c, before; take(k, c, before); k = 0; c = 0; before = 0 }
  od
}

/* A fence, the deadline, or a crash. */
active proctype World() {
end:
  atomic { is_open = 0 }
}

init {
  atomic {
    chain_at[0] = 1;
    run Sender(); run Receiver(0);
#if CONNECTIONS > 1
    run Receiver(1);
#endif
#if CONNECTIONS > 2
    run Receiver(2);
#endif
#if CONNECTIONS > 3
    run Receiver(3)
#endif
  }
#ifdef QUIESCE
  timeout -> assert(mode == RESTARTED || !is_open || step_next == K + 1)
#endif
}
