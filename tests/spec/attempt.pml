/* One session: its attempts, the ledger, two stages, two coordinators and the client.
 *
 * E attempts at most, S tokens to generate. The network is a set of facts: what was sent may be
 * delivered any number of times, in any order, arbitrarily late, or never. With -DLOSS a message
 * may also be lost for good, and with -DQUIESCE the end of every run is checked: a session ends,
 * no attempt stays open, no page stays taken.
 *
 * Every guard can be taken out with -DNO_<GUARD>; tests/spec/run.sh lists them and what each must
 * break. Runs with -DSEEN_<EVENT> assert that the event never happens and must fail: they show that
 * the model is not empty. README.md says what is not modelled. */
#ifndef E
#define E 2
#endif
#ifndef S
#define S 1
#endif
#define HEAD 0
#define TAIL 1
#ifdef CALM                                  /* No cancel, no crash of a stage: a smaller world. */
#define RESTARTS 2
#endif
#ifndef RESTARTS
#define RESTARTS TAIL                        /* The stage that may die and come back. */
#endif
#define AT(e, n) ((e) * 2 + (n))             /* An attempt at a stage. */
#define OF(e, k) ((e) * (S + 1) + (k))       /* A step of an attempt. */

/* States of an attempt, and outcomes. */
#define NONE 0
#define OPEN 1
#define COMPLETED 2
#define CANCELLED 3
#define EXPIRED 4
#define FENCED 5
#define FAILED 6

/* The ledger: durable, every write one transaction. */
byte term = 1, epoch = 0, outcome = NONE;
byte state[E + 1], records[E + 1];
byte granted_by[E + 1];                      /* Term. */
byte open_seq[E + 1];                        /* Rises over the OPENs of one coordinator. */

/* Messages. */
bool open_sent[(E + 1) * 2], fence_sent[(E + 1) * 2];
byte bound[(E + 1) * 2];                     /* The incarnation that OPEN and steps name. */
byte prefix[E + 1];                          /* Tokens the head is given as forced prefix. */
bool run_sent[E + 1];
bool bundle[(E + 1) * (S + 1)], back[(E + 1) * (S + 1)], token[(E + 1) * (S + 1)];
bool live_sent[2]; byte live_as_of[2], live_epoch[2];  /* A heartbeat reply, by coordinator. */

/* Stages. Volatile but for the term, which a node keeps on its disk. */
byte incarnation[2], lowest[2], term_seen[2];
bool is_open[2]; byte at_epoch[2], step_next[2], kv_steps[2];
bool busy[2]; byte busy_epoch[2], busy_step[2], busy_slot[2];
byte sampled;                                /* By the head, of its open attempt. */
byte slot_owner[4], slot[2];                 /* Two page slots a stage, by owner's epoch. */
bool pinned[2];                              /* Pages of a closed attempt under a running step. */

/* The client. */
byte held = 0, attached = 0, client_end = NONE;
bool cancel_asked, deadline, successor_up;

/* Ghosts. */
byte highest_closed[2];                      /* The lowest epoch still allowed, over all lives. */
bool decided[E + 1];                         /* Its coordinator has given it up. */
byte completed_count;
#ifdef SEEN_SUCCESSOR
bool first_delivered;
#endif

/* -------- guards -------- */
#ifdef NO_TERM
#define MY_TERM (1)
#else
#define MY_TERM (term == my_term)
#endif
#ifdef NO_CAS
#define STILL_OPEN(e) (state[e] != NONE)
#else
#define STILL_OPEN(e) (state[e] == OPEN)
#endif
#ifdef NO_FENCE
#define NOT_FENCED(e) (1)
#else
#define NOT_FENCED(e) ((e) >= lowest[n])
#endif
#ifdef NO_INCARNATION
#define MY_LIFE(e) (1)
#else
#define MY_LIFE(e) (bound[AT(e, n)] == incarnation[n])
#endif
#ifdef NO_NODE_TERM
#define OBEYED(t) (1)
#else
#define OBEYED(t) ((t) >= term_seen[n])
#endif
#ifdef NO_CAPABILITY
#define AUTHORISED(e) (((e) > epoch || open_sent[AT(e, n)]) && MY_LIFE(e))  /* Peers may open. */
#else
#define AUTHORISED(e) (open_sent[AT(e, n)] && MY_LIFE(e))
#endif
#ifdef NO_AS_OF
#define COVERED(c) (1)
#else
#define COVERED(c) (granted_by[at_epoch[n]] < (c) + 1 || \
                    open_seq[at_epoch[n]] <= live_as_of[c])
#endif
#ifdef NO_DURABLE_END
#define MAY_SAY_DONE (ending == COMPLETED)
#else
#define MAY_SAY_DONE (stored == COMPLETED)
#endif
#ifdef NO_NEWEST_CONNECTION
#define CLIENT_HEARS (1)
#else
#define CLIENT_HEARS (attached == me)
#endif

#ifdef LOSS
inline send(fact) { if :: fact = 1 :: skip fi }
#else
inline send(fact) { fact = 1 }
#endif

/* -------- ledger -------- */
inline write_record(e_, v_) {
  state[e_] = v_; records[e_]++; assert(records[e_] <= 1);
  if :: v_ == COMPLETED -> completed_count++; assert(completed_count <= 1) :: else fi
}

/* -------- stages -------- */
#define PAGES(n) ((slot_owner[(n) * 2] != 0) + (slot_owner[(n) * 2 + 1] != 0))
#define CONSERVED(n) assert(PAGES(n) == is_open[n] + pinned[n])

inline raise_fence(e_) {
  if :: (e_) > lowest[n] -> lowest[n] = e_ :: else fi;
  if :: (e_) > highest_closed[n] -> highest_closed[n] = e_ :: else fi;
  assert(lowest[n] <= epoch + 1)             /* Nobody but a coordinator's grant raises it. */
}
inline release(n_) {
  if :: is_open[n_] ->
#ifndef NO_PIN
        if :: busy[n_] && busy_epoch[n_] == at_epoch[n_] -> pinned[n_] = 1
           :: else -> slot_owner[n_ * 2 + slot[n_]] = 0
        fi;
#else
        slot_owner[n_ * 2 + slot[n_]] = 0;
#endif
        is_open[n_] = 0; kv_steps[n_] = 0; step_next[n_] = 1; at_epoch[n_] = 0;
        slot[n_] = 0;
        if :: n_ == HEAD -> sampled = 0 :: else fi
     :: else
  fi
}

#define CAN_OPEN(e) (AUTHORISED(e) && NOT_FENCED(e) && OBEYED(granted_by[e]) && \
                     !(is_open[n] && at_epoch[n] == (e)) && !pinned[n] && PAGES(n) < 2)
inline take_open(e_) {
  assert(e_ >= highest_closed[n]);           /* A fenced epoch never opens again. */
  release(n);
  if :: slot_owner[n * 2] == 0 -> slot[n] = 0 :: else -> slot[n] = 1 fi;
  slot_owner[n * 2 + slot[n]] = e_; is_open[n] = 1; at_epoch[n] = e_;
  step_next[n] = 1; kv_steps[n] = 0;
  if :: granted_by[e_] > term_seen[n] -> term_seen[n] = granted_by[e_] :: else fi;
  raise_fence(e_);
  CONSERVED(n)
}

#define CAN_FENCE(e) (fence_sent[AT(e, n)] && lowest[n] <= (e) && OBEYED(granted_by[e]))
inline take_fence(e_) {
  if :: granted_by[e_] > term_seen[n] -> term_seen[n] = granted_by[e_] :: else fi;
#ifdef NO_TOMBSTONE
  if :: is_open[n] && at_epoch[n] <= e_ -> release(n); raise_fence(e_ + 1)
     :: else -> fence_sent[AT(e_, n)] = 0;   /* Dropped: there is nothing to end. */
        if :: e_ + 1 > highest_closed[n] -> highest_closed[n] = e_ + 1 :: else fi
  fi;
#else
#ifdef SEEN_FENCE_BEFORE_OPEN
  if :: lowest[n] < e_ && open_sent[AT(e_, n)] && !is_open[n] -> assert(0) :: else fi;
#endif
  if :: is_open[n] && at_epoch[n] <= e_ -> release(n) :: else fi;
  raise_fence(e_ + 1);
#endif
  CONSERVED(n)
}

/* The head starts step k once it has sampled step k - 1; the tail once the bundle is there. */
#define READY(e, k) ((n == HEAD && run_sent[e] && sampled == (k) - 1) || \
                     (n == TAIL && bundle[OF(e, k)]))
#define STEPS(e) (S - prefix[e])
#define CAN_STEP(e, k) ((k) <= STEPS(e) && READY(e, k) && MY_LIFE(e))
inline begin_step(e_, k_) {
  busy[n] = 1; busy_epoch[n] = e_; busy_step[n] = k_; busy_slot[n] = slot[n]
}

proctype Stage(byte n; bool may_restart) {
  bool restarted = 0;
end:
  do
  :: atomic { CAN_OPEN(1) -> take_open(1) }
#if E > 1
  :: atomic { CAN_OPEN(2) -> take_open(2) }
#endif
#if E > 2
  :: atomic { CAN_OPEN(3) -> take_open(3) }
#endif
  :: atomic { CAN_FENCE(1) -> take_fence(1) }
#if E > 1
  :: atomic { CAN_FENCE(2) -> take_fence(2) }
#endif
#if E > 2
  :: atomic { CAN_FENCE(3) -> take_fence(3) }
#endif
#ifndef NO_LOCAL_DEADLINE
  :: atomic { deadline && is_open[n] -> raise_fence(at_epoch[n] + 1); release(n); CONSERVED(n) }
#endif
#ifdef LIVE_LISTS
  /* A heartbeat reply without the open attempt in it. */
  :: atomic { is_open[n] && live_sent[0] && live_epoch[0] != at_epoch[n] && OBEYED(1) &&
              COVERED(0) ->
       assert(state[at_epoch[n]] != OPEN || decided[at_epoch[n]]);
#ifdef SEEN_LIVE_LIST
       assert(0);
#endif
       raise_fence(at_epoch[n] + 1); release(n); CONSERVED(n) }
  :: atomic { is_open[n] && live_sent[1] && live_epoch[1] != at_epoch[n] && OBEYED(2) &&
              COVERED(1) ->
       assert(state[at_epoch[n]] != OPEN || decided[at_epoch[n]]);
       term_seen[n] = 2;
       raise_fence(at_epoch[n] + 1); release(n); CONSERVED(n) }
#endif
  :: atomic { is_open[n] && !busy[n] && CAN_STEP(at_epoch[n], step_next[n]) ->
       begin_step(at_epoch[n], step_next[n]) }
#ifdef NO_DEDUPLICATION
  :: atomic { is_open[n] && !busy[n] && n == TAIL && step_next[n] > 1 ->
       begin_step(at_epoch[n], step_next[n] - 1) }
#endif
#ifdef NO_EPOCH_ON_STEP
  :: atomic { is_open[n] && !busy[n] && n == TAIL && CAN_STEP(1, step_next[n]) ->
       begin_step(1, step_next[n]) }
#endif
  /* The device is done: it has written the pages. */
  :: atomic { busy[n] ->
       assert(slot_owner[n * 2 + busy_slot[n]] == busy_epoch[n]);
       if :: is_open[n] && at_epoch[n] == busy_epoch[n] ->
             assert(busy_step[n] == kv_steps[n] + 1);
             assert(busy_epoch[n] >= highest_closed[n]);
             kv_steps[n]++; step_next[n] = busy_step[n] + 1;
             if :: n == HEAD -> send(bundle[OF(busy_epoch[n], busy_step[n])])
                :: else -> send(back[OF(busy_epoch[n], busy_step[n])])
             fi
          :: else                            /* Fenced while it ran: discarded. */
       fi;
       busy[n] = 0;
       if :: pinned[n] -> slot_owner[n * 2 + busy_slot[n]] = 0; pinned[n] = 0 :: else fi;
       busy_epoch[n] = 0; busy_step[n] = 0; busy_slot[n] = 0;
       CONSERVED(n) }
  /* The ring closes: the head samples from what came back. */
  :: atomic { n == HEAD && is_open[HEAD] && sampled < STEPS(at_epoch[HEAD]) &&
              kv_steps[HEAD] > sampled && back[OF(at_epoch[HEAD], sampled + 1)] ->
       sampled++; send(token[OF(at_epoch[HEAD], sampled)]) }
  /* Crash, and a new life under the same id. */
  :: atomic { may_restart && !restarted ->
       restarted = 1; incarnation[n]++; lowest[n] = 1;
       is_open[n] = 0; busy[n] = 0; pinned[n] = 0; kv_steps[n] = 0; step_next[n] = 1;
       at_epoch[n] = 0; busy_epoch[n] = 0; busy_step[n] = 0; busy_slot[n] = 0; slot[n] = 0;
       slot_owner[n * 2] = 0; slot_owner[n * 2 + 1] = 0;
       if :: n == HEAD -> sampled = 0 :: else fi }
  od
}

/* -------- coordinators -------- */
inline fence_all(e_) { send(fence_sent[AT(e_, HEAD)]); send(fence_sent[AT(e_, TAIL)]) }

/* One transaction: the old attempt gets its record, the next one is open. The view of the
 * restarting node's life may be out of date. */
inline grant() {
  if :: epoch > 0 && state[epoch] == OPEN -> write_record(epoch, FENCED) :: else fi;
  epoch++; at = epoch; state[at] = OPEN; granted_by[at] = my_term;
  opens++; open_seq[at] = opens;
  prefix[at] = next; got = 0; opens_out = 0; failing = 0;
  bound[AT(at, HEAD)] = incarnation[HEAD]; bound[AT(at, TAIL)] = incarnation[TAIL];
  if :: skip
#ifndef CALM
     :: incarnation[RESTARTS] > 0 -> bound[AT(at, RESTARTS)] = 0
#endif
  fi
}
inline decide(v_) { ending = v_; decided[at] = 1; fence_all(at) }

inline deliver(index_) {
  if :: CLIENT_HEARS ->
        assert(client_end == NONE);          /* Silence after the end. */
        assert(index_ == held);              /* Each index once, in order. */
        held++
#ifdef SEEN_SUCCESSOR
        ; if :: me == 0 -> first_delivered = 1 :: else fi
#endif
     :: else
  fi
}
inline take_token(index_) {
#ifdef NO_INDEX
  deliver(index_);
  if :: index_ >= next -> next = index_ + 1 :: else fi
#else
  if :: index_ == next -> deliver(index_); next++ :: else fi
#endif
}

#ifdef NO_ENDING_CHECK
#define HEARS_TOKENS (1)
#else
#define HEARS_TOKENS (ending == NONE && !failing)
#endif

proctype Coordinator(byte me; byte my_term) {
  byte at = 0, next = 0, got = 0, opens = 0, ending = NONE, stored = NONE, judged = 0;
  bool opens_out = 0, failing = 0, dead = 0, admitted = 0;

  if
  :: me == 1 ->                              /* Takeover, any time: fence all, adopt nothing. */
     atomic {
       term = my_term; successor_up = 1;
       if :: epoch > 0 && state[epoch] == OPEN -> write_record(epoch, FENCED) :: else fi }
  :: else -> admitted = 1
  fi;
end:
  do
  /* The first coordinator has the request. The second waits for the client to come back with the
   * tokens it holds; a session that nobody comes back for is ended. */
  :: atomic { me == 0 && at == 0 && !dead && MY_TERM && outcome == NONE && epoch == 0 -> grant() }
  :: atomic { me == 1 && !admitted && attached == 1 ->
       admitted = 1; next = held;
       if :: outcome == NONE && epoch < E -> grant()
          :: outcome == NONE && epoch == E -> outcome = FAILED; stored = FAILED
          :: else -> stored = outcome        /* Answered from the ledger; nothing runs. */
       fi }
  :: atomic { me == 1 && !admitted && attached == 0 && outcome == NONE && epoch > 0 ->
       outcome = FAILED }

  :: atomic { at != 0 && !opens_out && !dead && !failing && ending == NONE ->
       opens_out = 1; send(open_sent[AT(at, HEAD)]); send(open_sent[AT(at, TAIL)]);
       send(run_sent[at]) }
  :: atomic { at != 0 && !dead && HEARS_TOKENS && got < STEPS(at) && token[OF(at, got + 1)] ->
       got++; take_token(prefix[at] + got - 1) }
#ifdef NO_CURRENT_CHECK
  :: atomic { at == 2 && granted_by[1] == my_term && !dead && HEARS_TOKENS && token[OF(1, 1)] ->
       take_token(prefix[1]) }
#endif
#ifdef LIVE_LISTS
  :: atomic { at != 0 && !dead && !live_sent[me] ->
       live_sent[me] = 1;
       live_as_of[me] = (opens_out -> opens : opens - 1);
       live_epoch[me] = (opens_out && !failing && ending == NONE -> at : 0) }
#endif

  /* How it ends is fixed once. */
  :: atomic { at != 0 && !dead && !failing && ending == NONE && next == S ->
       decide(COMPLETED) }
  :: atomic { at != 0 && !dead && ending == NONE && cancel_asked -> decide(CANCELLED) }
  :: atomic { at != 0 && !dead && ending == NONE && deadline -> decide(EXPIRED) }
  /* Failover, on a true or a false suspicion: fenced at once, granted when there is a route. */
  :: atomic { at != 0 && !dead && !failing && ending == NONE && epoch < E &&
              !deadline && !cancel_asked -> failing = 1; decided[at] = 1; fence_all(at) }
  :: atomic { failing && !dead && ending == NONE && MY_TERM && outcome == NONE && epoch < E ->
       grant() }
  :: atomic { at != 0 && !dead && ending == NONE && epoch == E -> decide(FAILED) }

  /* The record: OPEN to its end, once. */
#ifndef NO_ATOMIC_RECORD
  :: atomic { ending != NONE && stored == NONE && !dead && MY_TERM && STILL_OPEN(at) ->
       write_record(at, ending); outcome = ending; stored = ending }
#else
  :: atomic { ending != NONE && stored == NONE && !dead && judged == 0 && MY_TERM &&
              STILL_OPEN(at) ->
       judged = 1 }
  :: atomic { judged == 1 && !dead -> judged = 2;
       write_record(at, ending); outcome = ending; stored = ending }
#endif

  /* The client's end, on the connection it has now. */
  :: atomic { CLIENT_HEARS && !dead && admitted && client_end == NONE && MAY_SAY_DONE ->
       if :: at == 0 && held < S -> held++   /* Kept tokens, from the ledger. */
          :: else ->
             client_end = COMPLETED;
             assert(outcome == COMPLETED);   /* Success only after the record is durable. */
             assert(held == S)
       fi }
  :: atomic { CLIENT_HEARS && !dead && admitted && client_end == NONE && stored != NONE &&
              stored != COMPLETED -> client_end = stored }
#ifndef ALONE
  /* A crash; else it lives on and does not know. */
  :: atomic { me == 0 && !dead ->
       dead = 1; at = 0; next = 0; got = 0; opens = 0; opens_out = 0; ending = NONE; stored = NONE;
       judged = 0; admitted = 0; failing = 0 }
#endif
  od
}

/* -------- the rest of the world -------- */
proctype World() {
#ifndef CALM
  if :: cancel_asked = 1 :: skip fi;
#endif
  deadline = 1
}
/* The client comes back to whoever answers. */
proctype Client() {
end:
  atomic { successor_up && client_end == NONE -> attached = 1 }
}

init {
  atomic {
    lowest[0] = 1; lowest[1] = 1; step_next[0] = 1; step_next[1] = 1;
    run Stage(HEAD, RESTARTS == HEAD); run Stage(TAIL, RESTARTS == TAIL);
    run Coordinator(0, 1);
#ifndef ALONE
    run Coordinator(1, 2); run Client();
#endif
    run World()
  }
#ifdef QUIESCE
  timeout ->                                 /* Nothing else can move. */
    assert(outcome != NONE || epoch == 0);
    assert(epoch == 0 || state[epoch] != OPEN);
    assert(PAGES(HEAD) == 0 && PAGES(TAIL) == 0);
    assert(client_end != COMPLETED || outcome == COMPLETED);
    assert(outcome != COMPLETED || completed_count == 1)
#endif
#ifdef SEEN_FAILOVER
  ; atomic { state[2] == COMPLETED && incarnation[RESTARTS] > 0 && prefix[2] > 0 -> assert(0) }
#endif
#ifdef SEEN_SUCCESSOR
  ; atomic { client_end == COMPLETED && term == 2 && first_delivered && granted_by[epoch] == 2 ->
      assert(0) }
#endif
#ifdef SEEN_CANCEL_RUNNING
  ; atomic { outcome == CANCELLED && busy[TAIL] -> assert(0) }
#endif
#ifdef SEEN_KEPT_TOKENS
  ; atomic { client_end == COMPLETED && attached == 1 && granted_by[epoch] == 1 -> assert(0) }
#endif
}
