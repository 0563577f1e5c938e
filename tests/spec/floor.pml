/* Retention: when may a finished session be forgotten without ever running again.
 *
 * One idempotency key, two different requests under it (a client that errs), one session for it and
 * a node that may be replaced. A request may be delivered any number of times until the client's
 * retry horizon is over; OPEN and a client's Reattach may arrive arbitrarily late. Every guard can
 * be taken out with -DNO_<GUARD>. */
#define ABSENT 0
#define LIVE 1
#define OVER 2

/* The ledger. */
byte session = ABSENT;                       /* The row of the session and of its key. */
byte digest_kept;
bool floor_raised;                           /* Durable: the session is below the floor. */
byte sessions_made, bills;

/* Messages and the client. */
bool horizon_over;                           /* No call of this client is under way any more. */
bool open_sent; byte open_incarnation;
byte client_got_a, client_got_b;             /* Digest of the answer each request was given. */

/* The node. */
byte incarnation;
bool is_open, watermark, floor_known;

#ifdef NO_KEY
#define NEW(d) (sessions_made < 2)
#else
#define NEW(d) (session == ABSENT)
#endif
#ifdef NO_DIGEST
#define SAME_REQUEST(d) (1)
#else
#define SAME_REQUEST(d) (digest_kept == (d))
#endif
#ifdef NO_HORIZON
#define RETENTION_OVER (1)
#else
#define RETENTION_OVER (horizon_over)
#endif
#ifdef NO_FLOOR_ON_REATTACH
#define ABOVE_FLOOR (1)
#else
#define ABOVE_FLOOR (!floor_raised)
#endif
#ifdef NO_FLOOR_ON_NODE
#define NODE_ALLOWS (1)
#else
#define NODE_ALLOWS (!floor_known)
#endif
#ifdef NO_INCARNATION
#define MY_LIFE (1)
#else
#define MY_LIFE (open_incarnation == incarnation)
#endif
#ifdef NO_FLOOR_BEFORE_DROP
#define MAY_DROP (1)
#else
#define MAY_DROP (floor_known)
#endif

inline admit(d, got) {
  if
  :: NEW(d) ->
       session = LIVE; digest_kept = d; sessions_made++;
       assert(sessions_made <= 1);           /* One execution for a key. */
       open_sent = 1; open_incarnation = incarnation
  :: !NEW(d) && SAME_REQUEST(d) -> got = digest_kept; assert(digest_kept == d)
  :: else                                    /* kKeyConflict. */
  fi
}

active proctype Ledger() {
end:
  do
  :: atomic { !horizon_over && sessions_made < 3 -> admit(1, client_got_a) }
  :: atomic { !horizon_over && sessions_made < 3 -> admit(2, client_got_b) }
  /* A client that comes back by session id, at any time, after the row is gone. */
  :: atomic { sessions_made > 0 && ABOVE_FLOOR && session == ABSENT ->
       session = LIVE; sessions_made++; assert(sessions_made <= 1) }
  :: atomic { session == LIVE && is_open ->
       session = OVER; bills++; assert(bills <= 1);
#ifdef SEEN_BILL
       assert(0)
#endif
     }
  /* The floor is durable before anything is forgotten; a crash may come between. */
  :: atomic { session == OVER && RETENTION_OVER ->
#ifdef NO_FLOOR_BEFORE_DELETE
       session = ABSENT }
  :: atomic { sessions_made > 0 && session == ABSENT && !floor_raised -> floor_raised = 1 }
#else
       floor_raised = 1 }
  :: atomic { floor_raised && session == OVER -> session = ABSENT }
#endif
#ifdef SEEN_FORGOTTEN
  :: atomic { floor_raised && session == ABSENT && floor_known && !watermark -> assert(0) }
#endif
  od
}

active proctype Client() { horizon_over = 1 }

active proctype Node() {
  bool replaced = 0;
end:
  do
  :: atomic { open_sent && !is_open && !watermark && NODE_ALLOWS && MY_LIFE ->
       is_open = 1;
       assert(bills == 0) }                  /* A finished session never opens again. */
  :: atomic { is_open && session != LIVE -> is_open = 0; watermark = 1 }   /* FENCE. */
  :: atomic { floor_raised && !floor_known -> floor_known = 1 }            /* Heartbeat reply. */
  :: atomic { watermark && MAY_DROP -> watermark = 0 }
  /* Another process under the same id. It knows nothing but the floor, told in its welcome. */
  :: atomic { !replaced -> replaced = 1; incarnation++; is_open = 0; watermark = 0;
       floor_known = floor_raised }
  od
}
