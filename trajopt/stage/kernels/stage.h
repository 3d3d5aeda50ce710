/* One stage of an optimal-control problem, compiled as a whole: time step with sensitivities, cost terms with their expansions, and
   the closed-loop roll-out of a line search.  The twin of trajopt/stage/evaluation.py, for the knots of one phase.

   Before this text stands step.h with what it asks for; NU >= MU (controls of the problem), NP (dynamics parameters), NT and NTT
   (weights and parameters of the running and terminal terms); and the functions

       running_value(x, u, t, dt, theta, l, w)            running_expand(x, u, t, dt, theta, l, lx, lu, lxx, lux, luu, w)
       terminal_value(x, t, theta, l, w)                  terminal_expand(x, t, theta, l, lx, lxx, w)

   xs .. r, t, dt are those of the whole horizon; p and theta begin at the knot `origin` of the phase. */

/* Workspace in vectors: see stage_room() for what is carved from it. */
enum { AT_X = 0, AT_NEXT = AT_X + NX, AT_U = AT_NEXT + NX, AT_P = AT_U + NU, AT_THETA = AT_P + NP, AT_XN = AT_THETA + NT,
       AT_D = AT_XN + NX, AT_G = AT_D + ND, AT_M = AT_G + ND * NW, AT_L = AT_M + ND * (ND > NU ? ND : NU), AT_LX = AT_L + 1,
       AT_LU = AT_LX + ND, AT_LXX = AT_LU + NU, AT_LUX = AT_LXX + ND * ND, AT_LUU = AT_LUX + NU * ND, AT_WORK = AT_LUU + NU * NU };

EXPORT long stage_room(const int *head)
{
    const int nb = head[0], nv = head[1], nq = head[2];
    (void)nb; (void)nv; (void)nq;
    return AT_WORK + DYNAMICS_ROOM + TERMS_ROOM;
}

/* The LQ blocks and costs of knots first .. last. */
EXPORT void stage_expand(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *p, const double *theta, long origin, long first, long last, double *A, double *B, double *d, double *x_next, double *Q,
    double *q, double *S, double *R, double *r, double *cost, V *room)
{
    ctx_t c = {ti, td, room + AT_WORK};
    V *x = room + AT_X, *next = room + AT_NEXT, *xn = room + AT_XN, *u = room + AT_U, *G = room + AT_G, *M = room + AT_M;
    V *defect = room + AT_D;
    for (long n = first; n < last; n += LANES) {
        const int count = last - n < LANES ? last - n : LANES;
        pack(xs + n * NX, NX, count, x);
        pack(xs + (n + 1) * NX, NX, count, next);
        pack(us + n * NU, NU, count, u);
        pack(p + (n - origin) * NP, NP, count, room + AT_P);
        pack(theta + (n - origin) * NT, NT, count, room + AT_THETA);
        const V time = lanes_of(t + n, count), h = lanes_of(dt + n, count);
        linearize(c, substeps, x, u, time, h, room + AT_P, xn, G);
        unpack(xn, NX, count, x_next + n * NX);
        manifold_difference(next, xn, defect);
        unpack(defect, ND, count, d + n * ND);
#ifdef LIE /* into the tangent space at the node */
        V carry[LIE_ROOM];
        manifold_dexp_inv(defect, carry);
        blocks_times(carry, G, NW);
#endif
        for (int i = 0; i < ND; i++)
            for (int j = 0; j < ND; j++) M[i * ND + j] = G[i * NW + j];
        unpack(M, ND * ND, count, A + n * ND * ND);
        for (int i = 0; i < ND; i++)
            for (int j = 0; j < NU; j++) M[i * NU + j] = j < MU ? G[i * NW + ND + j] : ZERO;
        unpack(M, ND * NU, count, B + n * ND * NU);
        running_expand(x, u, &time, &h, room + AT_THETA, room + AT_L, room + AT_LX, room + AT_LU, room + AT_LXX, room + AT_LUX,
                       room + AT_LUU, room + AT_WORK);
        unpack(room + AT_L, 1, count, cost + n);
        unpack(room + AT_LX, ND, count, q + n * ND);
        unpack(room + AT_LU, NU, count, r + n * NU);
        unpack(room + AT_LXX, ND * ND, count, Q + n * ND * ND);
        unpack(room + AT_LUX, NU * ND, count, S + n * NU * ND);
        unpack(room + AT_LUU, NU * NU, count, R + n * NU * NU);
    }
}

EXPORT void stage_terminal(const double *xN, const double *t, const double *theta, double *Q, double *q, double *cost, V *room)
{
    V theta_lanes[NTT + 1];
    const V time = splat(t[0]);
    pack(xN, NX, 1, room + AT_X);
    pack(theta, NTT, 1, theta_lanes);
    terminal_expand(room + AT_X, &time, theta_lanes, room + AT_L, room + AT_LX, room + AT_LXX, room + AT_WORK);
    unpack(room + AT_L, 1, 1, cost);
    unpack(room + AT_LX, ND, 1, q);
    unpack(room + AT_LXX, ND * ND, 1, Q);
}

/* Entry i of the rows of `values` at the knots n of the lanes; same: n[0] for all. */
ALWAYS_INLINE V of_lanes(const double *values, const long *n, long width, long i, int same)
{
    V r = ZERO;
    if (same) return splat(values[n[0] * width + i]);
    for (int l = 0; l < LANES; l++) LANE(r, l) = values[n[l] * width + i];
    return r;
}

/* xs (+) alpha dx at the knots of the lanes */
static void along(const double *xs, const double *dx, V alpha, const long *n, int same, V *restrict y)
{
    V from[NX], move[ND];
    for (int i = 0; i < NX; i++) from[i] = of_lanes(xs, n, NX, i, same);
    for (int i = 0; i < ND; i++) move[i] = alpha * of_lanes(dx, n, ND, i, same);
    manifold_integrate(from, move, y);
}

static int all_same(const long *n)
{
    for (int l = 1; l < LANES; l++)
        if (n[l] != n[0]) return 0;
    return 1;
}

/* Closed-loop trajectories in parts, one in each lane: part k has the knots start[k] .. stop[k] of the horizon of N, with the step
   length alphas[trial[k]]; it begins at xs (+) alpha dx at knot 0 and at nodes with linear gaps, elsewhere at the state found in X,
   and ends at the first such node.  cost[k] is its running cost. */
EXPORT void stage_rollout(
    const int *const *ti, const double *const *td, int substeps, long N, long origin, long first, long last, const long *start,
    const long *stop, const long *trial, const double *xs, const double *us, const double *dx, const double *du, const double *K,
    const double *gaps, const double *lower, const double *upper, const signed char *node, int nonlinear, const double *alphas,
    const double *t, const double *dt, const double *p, const double *theta, double *X, double *U, double *D, double *cost, V *room)
{
    ctx_t c = {ti, td, room + AT_WORK};
    V *x = room + AT_X, *xn = room + AT_XN, *u = room + AT_U, *ahead = room + AT_NEXT, *e = room + AT_D, *w = room + AT_WORK;
    V *parameters = room + AT_P, *weights = room + AT_THETA;
    for (long part = first; part < last; part += LANES) {
        const int count = last - part < LANES ? last - part : LANES;
        long n[LANES], next[LANES], own[LANES], steps = 0;
        V alpha = ZERO, total = ZERO, l;
        for (int s = 0; s < LANES; s++) {
            const long k = part + (s < count ? s : count - 1);
            n[s] = start[k];
            LANE(alpha, s) = alphas[trial[k]];
            if (stop[k] - n[s] > steps) steps = stop[k] - n[s];
        }
        const V left = 1.0 - alpha;
        int same = all_same(n);
        along(xs, dx, alpha, n, same, ahead);
        memcpy(x, ahead, sizeof(V) * NX);
        for (int s = 0; s < count; s++) {
            double *kept = X + (trial[part + s] * (N + 1) + n[s]) * NX;
            const int fresh = n[s] == 0 || (node[n[s]] && !nonlinear);
            for (int i = 0; i < NX; i++)
                if (fresh) kept[i] = LANE(x[i], s);
                else LANE(x[i], s) = kept[i];
        }
        for (long j = 0; j < steps; j++) {
            manifold_difference(ahead, x, e);
            for (int i = 0; i < NU; i++) {
                V s = of_lanes(us, n, NU, i, same) + alpha * of_lanes(du, n, NU, i, same);
                for (int k = 0; k < ND; k++) s += of_lanes(K, n, NU * ND, i * ND + k, same) * e[k];
                if (lower) s = v_fmax(v_fmin(s, of_lanes(upper, n, NU, i, same)), of_lanes(lower, n, NU, i, same));
                u[i] = s;
            }
            for (int s = 0; s < LANES; s++) own[s] = n[s] - origin, next[s] = n[s] + 1;
            for (int i = 0; i < NP; i++) parameters[i] = of_lanes(p, own, NP, i, same);
            for (int i = 0; i < NT; i++) weights[i] = of_lanes(theta, own, NT, i, same);
            const V time = of_lanes(t, n, 1, 0, same), h = of_lanes(dt, n, 1, 0, same);
            running_value(x, u, &time, &h, weights, &l, w);
            step(c, substeps, x, u, time, h, parameters, xn);
            along(xs, dx, alpha, next, same, ahead);
            memcpy(x, xn, sizeof(V) * NX);
            for (int i = 0; i < ND; i++) e[i] = ZERO;
            if (nonlinear) { /* the parts of all lanes are then the same */
                V back[ND];
                if (node[next[0]]) {
                    for (int i = 0; i < ND; i++) back[i] = -(e[i] = left * gaps[n[0] * ND + i]);
                    manifold_integrate(xn, back, x);
                }
            } else {
                V gap[ND];
                manifold_difference(ahead, xn, gap);
                for (int s = 0; s < LANES; s++) {
                    if (!node[next[s]]) continue;
                    for (int i = 0; i < ND; i++) LANE(e[i], s) = LANE(gap[i], s);
                    for (int i = 0; i < NX; i++) LANE(x[i], s) = LANE(ahead[i], s);
                }
            }
            for (int s = 0; s < count; s++) {
                const long of = trial[part + s], m = n[s];
                if (j >= stop[part + s] - start[part + s]) continue;
                LANE(total, s) += LANE(l, s);
                for (int i = 0; i < NU; i++) U[(of * N + m) * NU + i] = LANE(u[i], s);
                for (int i = 0; i < ND; i++) D[(of * N + m) * ND + i] = LANE(e[i], s);
                if (m + 1 < N && node[m + 1] && !nonlinear) continue; /* written by the part that begins there */
                for (int i = 0; i < NX; i++) X[(of * (N + 1) + m + 1) * NX + i] = LANE(x[i], s);
            }
            for (int s = 0; s < LANES; s++) /* a part that has ended goes on at its last knot, unseen */
                if (next[s] < stop[part + (s < count ? s : count - 1)]) n[s] = next[s];
            same = all_same(n);
        }
        for (int s = 0; s < count; s++) cost[part + s] = LANE(total, s);
    }
}

/* The terminal costs of `count` trajectories of N knots. */
EXPORT void stage_terminal_cost(long N, const double *X, const double *t, const double *theta, long count, double *cost, V *room)
{
    V weights[NTT + 1], l;
    const V time = splat(t[0]);
    for (int i = 0; i < NTT; i++) weights[i] = splat(theta[i]);
    for (long k = 0; k < count; k += LANES) {
        for (int s = 0; s < LANES; s++)
            for (int i = 0; i < NX; i++) LANE(room[AT_X + i], s) = X[((k + s < count ? k + s : k) * (N + 1) + N) * NX + i];
        terminal_value(room + AT_X, &time, weights, &l, room + AT_WORK);
        for (int s = 0; s < LANES && k + s < count; s++) cost[k + s] = LANE(l, s);
    }
}
