/* Solves by the interior-point method: the twin of ipm.py.  Before this text stands interior_search.h.

   A solve is begun, iterated until something else than GO_ON comes back, and is at its end then; single solves do so call by call, batches
   one problem after the other on each thread.  Steps for feasibility alone stand in Python only: a solve that ends in NO_STEP or CREEPS asks for
   them. */

/* Multipliers at the start: of the bounds from the barrier, the others by least squares or zero; given: those that are there stay. */
EXPORT void interior_multipliers(solve_t *o, int given)
{
    interior_t *w = o->w;
    const ipm_structure *s = &w->structure;
    const ipm_multipliers *z = &w->z, *found = &w->steps[0]->z;
    const ipm_point at = to_read(o->point);
    const double *v = at.v;
    const long count = numbers(s);
    const int warm = given || w->barrier < NEAR;
    for (long i = 0; i < count; i++) {
        const double below = o->mu / (v[i] - s->lower[i]), above = o->mu / (s->upper[i] - v[i]);
        const double own_below = given ? z->zl[i] : 0.0, own_above = given ? z->zu[i] : 0.0;
        z->zl[i] = !(s->lower[i] > -HUGE_VAL) ? 0.0 : warm ? fmax(own_below, below) : fmin(1.0, below);
        z->zu[i] = !(s->upper[i] < HUGE_VAL) ? 0.0 : warm ? fmax(own_above, above) : fmin(1.0, above);
    }
    if (given) return;
    w->system->settings = (ipm_settings){0.0, o->scale, 0.0, 0.0, ESTIMATE};
    ipm_build(w->system, &at, z);
    memset(w->system->rows, 0, sizeof(double) * s->rows);
    ipm_factor_damped(w->system, 0.0, 0.0);
    ipm_solve(w->system, &at, z, w->system->rows, 1.0, w->steps[0]);
    const double most = largest(found->f, s->fixes, largest(found->y, s->rows, largest(found->lambda, s->N * N_, 0.0)));
    const int kept = most <= LARGEST_ESTIMATE;
    for (long i = 0; i < s->N * N_; i++) z->lambda[i] = kept ? found->lambda[i] : 0.0;
    for (long i = 0; i < s->rows; i++) z->y[i] = kept ? found->y[i] : 0.0;
    for (long i = 0; i < s->fixes; i++) z->f[i] = kept ? found->f[i] : 0.0;
}

/* The guess of a problem within its bounds, with derivatives, without multipliers: GO_ON, or NOT_FINITE. */
EXPORT long interior_begin(solve_t *o, interior_t *w, const member_t *m)
{
    const double began = now();
    ipm_structure *s = &w->structure;
    memset(o, 0, sizeof *o);
    o->w = w, o->m = m, o->point = w->places, o->other = w->places + 1, o->mu = w->barrier, o->most = HUGE_VAL, o->began = began;
    o->is_free = w->adaptive, o->hopeful = 1, o->scale = 1.0, o->since = began;
    s->lower = m->lower, s->upper = m->upper, s->target = m->target, s->at = m->at;
    w->system->structure = s;
    w->system->shift = w->system->last_shift = 0.0, w->system->reflected = 0;
    const double push = w->barrier < NEAR ? NEAR_PUSH : PUSH;
    double *v = o->point->own.v;
    memcpy(o->point->xs, m->xs, sizeof(double) * (s->N + 1) * w->program.nx);
    memcpy(o->point->xs, m->x0, sizeof(double) * w->program.nx);
    memcpy(v + first_control(s), m->us, sizeof(double) * s->N * M_);
    memset(v + first_slack(s), 0, sizeof(double) * s->rows);
    ipm_push(s, NULL, push, push, v);
    o->objective = find_first(PROBLEM(o), o->point);
    ipm_push(s, o->point->own.g, push, push, v);
    o->at = violation_at(o, o->point);
    lap(o, DERIVATIVES);
    if (!(fabs(o->objective + o->at.theta) < HUGE_VAL)) return NOT_FINITE;
    const double steepest = largest(o->point->own.lu, s->N * M_, largest(o->point->own.lx + N_, s->N * N_, 0.0));
    o->scale = steepest > 0.0 ? fmin(1.0, STEEPEST / steepest) : 1.0;
    restart(o);
    return GO_ON;
}

/* Go on from the point where the solve is, which was changed from outside. */
EXPORT void interior_resume(solve_t *o) { o->objective = find_first(PROBLEM(o), o->point), o->at = violation_at(o, o->point); }

/* The Newton step; with a free barrier, for the mu that a step for mu = 0 suggests; 0: there is none. */
static int find_direction(solve_t *o, optimality_t now_, direction_t *step)
{
    interior_t *w = o->w;
    const ipm_point at = to_read(o->point);
    const int probing = o->is_free && now_.products > 0;
    w->system->settings = (ipm_settings){probing ? 0.0 : o->mu, o->scale, 1.0, 0.0, NEWTON};
    ipm_build(w->system, &at, &w->z);
    if (!ipm_factor(w->system, !o->slow)) return 0;
    if (probing) {
        if (!(o->most < HUGE_VAL)) o->most = LARGEST * now_.mean;
        const double low = fmax(SMALLEST_SIGMA, w->least / now_.mean), high = fmin(LARGEST_SIGMA, o->most / now_.mean);
        const double dual = now_.squares / (double)numbers(&w->structure), primal = o->at.squares / (double)w->equations;
        const ipm_aim aim = {now_.mean, dual, primal, low, fmax(high, low), fmax(TAU, 1.0 - now_.error)};
        ipm_centered(w->system, &at, &w->z, &aim, w->steps[1], w->steps[0]);
        if (w->system->mu_of_step != o->mu) restart(o);
        o->mu = w->system->mu_of_step;
    } else {
        ipm_solve(w->system, &at, &w->z, w->system->rows, fmax(TAU, 1.0 - o->mu), w->steps[0]);
    }
    *step = solved(w, w->steps[0]);
    return 1;
}

/* Move to the end of the step that was found, whose values and first derivatives are known. */
static void take(solve_t *o)
{
    place_t *left = o->point;
    o->point = o->other, o->other = left, o->found = 0;
    ipm_take(&o->w->structure, o->point->own.v, &o->step.own->z, o->alpha, o->step.alpha_z, o->mu, KAPPA_SIGMA, &o->w->z);
    if (o->w->program.carried) o->w->program.carried(o->step.own->v + N_, o->alpha, o->w->structure.N, o->w->z.lambda);
    o->objective = o->objective_there, o->at = o->there;
}

/* See _ended of ipm.py; GO_ON where the solve goes on. */
static long ended(const solve_t *o)
{
    const interior_t *w = o->w;
    const optimality_t *now_ = &o->now_;
    if (!(fabs(now_->error) < HUGE_VAL)) return NOT_FINITE;
    if (now_->error <= w->gradient_tolerance && now_->violation <= w->constraint_tolerance) return CONVERGED;
    if (o->iteration >= w->max_iterations || (w->time_limit > 0.0 && now() - o->began > w->time_limit)) return STOPPED;
    if (o->objective < BOTTOM && now_->violation <= w->constraint_tolerance) return UNBOUNDED;
    return *w->stop ? INTERRUPTED : GO_ON;
}

/* Whether steps that were found have been short for long; the last one is left then. */
static int creeps(solve_t *o)
{
    o->crept = o->alpha < CREPT && o->now_.violation > o->w->constraint_tolerance ? o->crept + 1 : 0;
    if (o->crept < CREEPING) return 0;
    o->crept = o->found = 0;
    return 1;
}

/* Take the step that was found, if there is one, and find the next: GO_ON, or an end, of which only NO_STEP, CREEPS and PRECISION count as an
   iteration. */
EXPORT long interior_iterate(solve_t *o)
{
    memset(o->seconds, 0, sizeof o->seconds);
    o->since = now();
    if (o->found) take(o);
    o->now_ = optimality(o);
    const long end = ended(o);
    if (end != GO_ON) {
        lap(o, BACKWARD);
        return end;
    }
    watch(o, o->now_);
    while (!o->is_free && o->now_.shifted <= KAPPA_EPS * o->mu && lowered(o) < o->mu) {
        o->mu = lowered(o);
        restart(o);
        o->now_ = optimality(o);
    }
    lap(o, BACKWARD);
    find_second(PROBLEM(o), o->scale, &o->w->z, o->point);
    lap(o, DERIVATIVES);
    o->found = find_direction(o, o->now_, &o->step);
    lap(o, BACKWARD);
    o->found = o->found && search(o, &o->step, &o->alpha, &o->objective_there, &o->there);
    lap(o, ROLLOUT);
    o->iteration++;
    if (!o->found) return o->now_.error <= ACCEPTABLE ? PRECISION : NO_STEP;
    if (creeps(o)) return CREEPS;
    o->size = largest(o->step.own->v, numbers(&o->w->structure), 0.0);
    watch_curvature(o, o->now_.error, o->alpha);
    return GO_ON;
}

static long solve(solve_t *o, interior_t *w, const member_t *m)
{
    long code = interior_begin(o, w, m);
    if (code == GO_ON) interior_multipliers(o, 0);
    while (code == GO_ON) code = interior_iterate(o);
    const double *v = o->point->own.v;
    const optimality_t *last = &o->now_;
    memcpy(m->to_xs, o->point->xs, sizeof(double) * (w->structure.N + 1) * w->program.nx);
    memcpy(m->to_us, v + first_control(&w->structure), sizeof(double) * w->structure.N * M_);
    *m->result = (result_t){code,        o->iteration, o->objective,    last->gradient, last->violation, last->plain,
                            last->error, o->scale,     now() - o->began};
    return code;
}

/* Solve problems, one after the other in o, until there are none left, or until `stop` is set. */
static void solve_all(solve_t *o, interior_t *w)
{
    while (!*w->stop) {
        const long number = __atomic_fetch_add(w->next, 1, __ATOMIC_RELAXED);
        if (number >= w->total) break;
        const long code = solve(o, w, w->members + number);
        if (code != NOT_FINITE && code != NO_STEP && code != CREEPS) __atomic_add_fetch(w->done, 1, __ATOMIC_RELAXED);
    }
}

EXPORT void interior_run(interior_t *w)
{
    solve_t o;
    solve_all(&o, w);
}

/* The sizes of interior_t, part_t, result_t, member_t and solve_t. */
EXPORT long interior_size(int of)
{
    const long sizes[] = {sizeof(interior_t), sizeof(part_t), sizeof(result_t), sizeof(member_t), sizeof(solve_t)};
    return sizes[of];
}
