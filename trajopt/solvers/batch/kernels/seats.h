/* Seats that take turns on one thread.  Before this text stand coroutines.h and LANES.

   A seat holds a problem and runs the one source of its solve as a coroutine.  Where that asks for what is done for several problems side by
   side, the seat waits: when all seats do, what most of them wait for is done, with one problem in each lane.  Decisions are scalar and each
   problem's own; problems need not be in step.  A seat whose problem has ended takes the next one. */

enum { IDLE, READY, AT_ONCE, ABREAST }; /* what a seat waits for; ABREAST, ABREAST + 1, ..: kinds of work that is done side by side */

typedef struct turns turns_t;
typedef struct seat seat_t;

/* own: what the solver knows of it.  asked: what the seat waits for, of a kind; serve: what does it AT_ONCE, for this seat alone. */
struct seat {
    turns_t *turns;
    void *own;
    coroutine_t coroutine;
    long waits_for, since;
    void (*serve)(seat_t *, void *);
    void *asked;
};

/* Lanes that worked, and all there were, by knots: in ways back over the knots, and in ways forward. */
typedef struct {
    long busy[2], all[2];
} use_t;

enum { BACK, AHEAD };

/* serve: does some work of a kind for seats that wait for it, and makes these READY. */
struct turns {
    seat_t *seats;
    long count, turn;
    void (*serve)(turns_t *, long kind);
    void *own;
    use_t use;
};

/* Turns after which a seat is served although more wait for something else: for the sake of time limits, since who waits for what is rare joins others
   that do. */
#define PATIENT 100

static __thread seat_t *now_seated;

/* Called within a solve: wait until work of a kind is done. */
static void ask(long kind, void (*serve)(seat_t *, void *), void *asked)
{
    seat_t *seat = now_seated;
    seat->waits_for = kind, seat->serve = serve, seat->asked = asked, seat->since = seat->turns->turn;
    wait_here(&seat->coroutine);
}

static void note_use(turns_t *t, int of, long busy, long knots)
{
    t->use.busy[of] += busy * knots;
    t->use.all[of] += LANES * knots;
}

/* The seat that waits the longest: for a kind, or IDLE for anything. */
static seat_t *oldest(const turns_t *t, long kind)
{
    seat_t *found = NULL;
    for (seat_t *seat = t->seats; seat < t->seats + t->count; seat++)
        if ((kind ? seat->waits_for == kind : seat->waits_for != IDLE) && (!found || seat->since < found->since)) found = seat;
    return found;
}

/* Seats that wait for a kind of work behind the `count` that are found already, up to LANES of all, from the one that waits the longest on, which become
   READY; how many there are then.  joins: whether what a seat has asked for can be done beside what the first one has; NULL: it can. */
static int gather(turns_t *t, long kind, int (*joins)(const void *first, const void *asked), seat_t **found, int count)
{
    const seat_t *first = oldest(t, kind);
    for (long i = 0; first && i < t->count && count < LANES; i++) {
        seat_t *seat = t->seats + (first - t->seats + i) % t->count;
        if (seat->waits_for != kind || (joins && !joins(first->asked, seat->asked))) continue;
        seat->waits_for = READY;
        found[count++] = seat;
    }
    return count;
}

/* Whether at most so many seats are left at work, at the end of a batch, where lanes of their work would be empty: then the knots of a problem fill
   them better. */
static int are_left(const turns_t *t, long most)
{
    long left = 0;
    for (long i = 0; i < t->count; i++) left += t->seats[i].waits_for != IDLE;
    return left <= most;
}

/* What most seats wait for, unless one has waited for long. */
static long most_wanted(const turns_t *t)
{
    long best = IDLE, most = 0;
    const seat_t *longest = oldest(t, IDLE);
    if (longest && t->turn - longest->since > PATIENT) return longest->waits_for;
    for (long i = 0; i < t->count; i++) {
        const long kind = t->seats[i].waits_for;
        long count = 0;
        if (kind == IDLE) continue;
        for (long j = i; j < t->count; j++) count += t->seats[j].waits_for == kind;
        if (count > most) most = count, best = kind;
    }
    return best;
}

/* Let a seat go on until it waits for others, or has no more to do. */
static void seat_goes_on(seat_t *seat)
{
    do {
        if (seat->waits_for == AT_ONCE) seat->serve(seat, seat->asked);
        seat->waits_for = READY;
        now_seated = seat;
        go_on(&seat->coroutine);
        if (seat->coroutine.ended) seat->waits_for = IDLE;
    } while (seat->waits_for == AT_ONCE);
}

/* Let all seats do their work, of which each has `work` with itself as argument, to its end. */
static void take_turns(turns_t *t, void (*work)(void *seat))
{
    for (seat_t *seat = t->seats; seat < t->seats + t->count; seat++) {
        seat->turns = t, seat->waits_for = READY;
        begin_coroutine(&seat->coroutine, work, seat);
    }
    while (1) {
        for (seat_t *seat = t->seats; seat < t->seats + t->count; seat++)
            if (seat->waits_for == READY) seat_goes_on(seat);
        const long kind = most_wanted(t);
        if (kind == IDLE) break;
        t->turn++;
        t->serve(t, kind);
    }
}

/* Make seat i ready, with what the solver knows of it and a stack. */
EXPORT void seats_place(seat_t *seats, long i, void *own, char *stack, long size)
{
    seats[i].own = own, seats[i].coroutine.stack = stack, seats[i].coroutine.size = size;
}

EXPORT long seats_size(int of) { return of == 0 ? sizeof(seat_t) : sizeof(turns_t); }
