/* One stage of an optimal-control problem, compiled as a whole: time step with sensitivities, cost terms with their expansions, and
   the closed-loop roll-out of a line search.  The twin of trajopt/evaluation.py on vector spaces.

   Before this text stand a prelude (prelude.h, or scalar.h for one lane in plain C99); NX, NU, NP (dynamics parameters), NT and NTT
   (weights and parameters of the running and terminal terms); STAGES and the tableau A_, B_, C_ of a Runge-Kutta method, or
   SEMI_IMPLICIT; and the functions

       dynamics_value(ctx, x, u, t, p, xdot)             dynamics_partials(ctx, x, u, t, p, xdot, fx, fu)
       running_value(x, u, t, dt, theta, l, w)            running_expand(x, u, t, dt, theta, l, lx, lu, lxx, lux, luu, w)
       terminal_value(x, t, theta, l, w)                  terminal_expand(x, t, theta, l, lx, lxx, w)              */

#define NV (NX / 2)
#define NW (NX + NU)

/* C (NX x NW) = X Y for X (NX x NX), Y (NX x NW) */
static void product(const V *restrict X, const V *restrict Y, V *restrict C)
{
    for (int i = 0; i < NX; i++) {
        V row[NW];
        for (int j = 0; j < NW; j++) row[j] = ZERO;
        for (int k = 0; k < NX; k++)
            for (int j = 0; j < NW; j++) row[j] += X[i * NX + k] * Y[k * NW + j];
        for (int j = 0; j < NW; j++) C[i * NW + j] = row[j];
    }
}

#ifdef SEMI_IMPLICIT
static void increment(ctx_t c, const V *x, const V *u, V t, V h, const V *p, V *restrict delta)
{
    V f[NX];
    dynamics_value(c, x, u, t, p, f);
    for (int i = 0; i < NV; i++) {
        delta[NV + i] = h * f[NV + i];
        delta[i] = h * (f[i] + delta[NV + i]);
    }
}

/* delta and its derivative (NX x NW) in (x, u) */
static void increment_partials(ctx_t c, const V *x, const V *u, V t, V h, const V *p, V *restrict delta, V *restrict D)
{
    V f[NX], fx[NX * NX], fu[NX * NU];
    dynamics_partials(c, x, u, t, p, f, fx, fu);
    for (int i = 0; i < NV; i++) {
        const int q = i, v = NV + i;
        delta[v] = h * f[v];
        delta[q] = h * (f[q] + delta[v]);
        for (int j = 0; j < NX; j++) {
            D[v * NW + j] = h * fx[v * NX + j];
            D[q * NW + j] = h * (fx[q * NX + j] + D[v * NW + j]);
        }
        for (int j = 0; j < NU; j++) {
            D[v * NW + NX + j] = h * fu[v * NU + j];
            D[q * NW + NX + j] = h * (fu[q * NU + j] + D[v * NW + NX + j]);
        }
    }
}
#else
static void increment(ctx_t c, const V *x, const V *u, V t, V h, const V *p, V *restrict delta)
{
    V k[STAGES][NX], at[NX];
    for (int s = 0; s < STAGES; s++) {
        for (int i = 0; i < NX; i++) {
            V sum = ZERO;
            for (int j = 0; j < s; j++) sum += A_[s][j] * k[j][i];
            at[i] = x[i] + h * sum;
        }
        dynamics_value(c, at, u, t + C_[s] * h, p, k[s]);
    }
    for (int i = 0; i < NX; i++) {
        V sum = ZERO;
        for (int s = 0; s < STAGES; s++) sum += B_[s] * k[s][i];
        delta[i] = h * sum;
    }
}

static void increment_partials(ctx_t c, const V *x, const V *u, V t, V h, const V *p, V *restrict delta, V *restrict D)
{
    SCRATCH V K[STAGES][NX * NW];
    V k[STAGES][NX], at[NX], fx[NX * NX], fu[NX * NU], S[NX * NW];
    for (int s = 0; s < STAGES; s++) {
        for (int i = 0; i < NX; i++) {
            V sum = ZERO;
            for (int j = 0; j < s; j++) sum += A_[s][j] * k[j][i];
            at[i] = x[i] + h * sum;
        }
        dynamics_partials(c, at, u, t + C_[s] * h, p, k[s], fx, fu);
        for (int i = 0; i < NX * NW; i++) {
            V sum = ZERO;
            for (int j = 0; j < s; j++) sum += A_[s][j] * K[j][i];
            S[i] = h * sum;
        }
        for (int i = 0; i < NX; i++) S[i * NW + i] += 1.0;
        product(fx, S, K[s]);
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NU; j++) K[s][i * NW + NX + j] += fu[i * NU + j];
    }
    for (int i = 0; i < NX; i++) {
        V sum = ZERO;
        for (int s = 0; s < STAGES; s++) sum += B_[s] * k[s][i];
        delta[i] = h * sum;
    }
    for (int i = 0; i < NX * NW; i++) {
        V sum = ZERO;
        for (int s = 0; s < STAGES; s++) sum += B_[s] * K[s][i];
        D[i] = h * sum;
    }
}
#endif

static void step(ctx_t c, int substeps, const V *x0, const V *u, V t, V dt, const V *p, V *restrict x)
{
    const V h = dt / (double)substeps;
    V delta[NX];
    for (int i = 0; i < NX; i++) x[i] = x0[i];
    for (int s = 0; s < substeps; s++) {
        increment(c, x, u, t + (double)s * h, h, p, delta);
        for (int i = 0; i < NX; i++) x[i] += delta[i];
    }
}

/* x_next and its derivative G (NX x NW) in (x, u), chained over the substeps */
static void linearize(ctx_t c, int substeps, const V *x0, const V *u, V t, V dt, const V *p, V *restrict x, V *restrict G)
{
    const V h = dt / (double)substeps;
    V delta[NX], D[NX * NW], P[NX * NX], T[NX * NW];
    for (int i = 0; i < NX; i++) x[i] = x0[i];
    for (int s = 0; s < substeps; s++) {
        increment_partials(c, x, u, t + (double)s * h, h, p, delta, s ? D : G);
        if (!s) {
            for (int i = 0; i < NX; i++) G[i * NW + i] += 1.0;
        } else {
            for (int i = 0; i < NX; i++) {
                for (int j = 0; j < NX; j++) P[i * NX + j] = D[i * NW + j];
                P[i * NX + i] += 1.0;
            }
            product(P, G, T);
            for (int i = 0; i < NX * NW; i++) G[i] = T[i];
            for (int i = 0; i < NX; i++)
                for (int j = NX; j < NW; j++) G[i * NW + j] += D[i * NW + j];
        }
        for (int i = 0; i < NX; i++) x[i] += delta[i];
    }
}

static V lanes_of(const double *values, int count)
{
    V r;
    for (int l = 0; l < LANES; l++) LANE(r, l) = values[l < count ? l : count - 1];
    return r;
}

/* Workspace in vectors: see room() for what is carved from it. */
enum { AT_X = 0, AT_NEXT = AT_X + NX, AT_U = AT_NEXT + NX, AT_P = AT_U + NU, AT_THETA = AT_P + NP, AT_XN = AT_THETA + NT,
       AT_G = AT_XN + NX, AT_M = AT_G + NX * NW, AT_L = AT_M + NX * NX, AT_LX = AT_L + 1, AT_LU = AT_LX + NX, AT_LXX = AT_LU + NU,
       AT_LUX = AT_LXX + NX * NX, AT_LUU = AT_LUX + NU * NX, AT_WORK = AT_LUU + NU * NU };

EXPORT long stage_room(const int *head)
{
    const int nb = head[0], nv = head[1], nq = head[2];
    (void)nb; (void)nv; (void)nq;
    return AT_WORK + DYNAMICS_ROOM + TERMS_ROOM;
}

/* The LQ blocks and costs of knots first .. last. */
EXPORT void stage_expand(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *p, const double *theta, long first, long last, double *A, double *B, double *d, double *x_next, double *Q, double *q,
    double *S, double *R, double *r, double *cost, V *room)
{
    ctx_t c = {ti, td, room + AT_WORK};
    V *x = room + AT_X, *xn = room + AT_XN, *u = room + AT_U, *G = room + AT_G, *M = room + AT_M;
    for (long n = first; n < last; n += LANES) {
        const int count = last - n < LANES ? last - n : LANES;
        pack(xs + n * NX, NX, count, x);
        pack(xs + (n + 1) * NX, NX, count, room + AT_NEXT);
        pack(us + n * NU, NU, count, u);
        pack(p + n * NP, NP, count, room + AT_P);
        pack(theta + n * NT, NT, count, room + AT_THETA);
        const V time = lanes_of(t + n, count), h = lanes_of(dt + n, count);
        linearize(c, substeps, x, u, time, h, room + AT_P, xn, G);
        unpack(xn, NX, count, x_next + n * NX);
        for (int i = 0; i < NX; i++) xn[i] -= room[AT_NEXT + i];
        unpack(xn, NX, count, d + n * NX);
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NX; j++) M[i * NX + j] = G[i * NW + j];
        unpack(M, NX * NX, count, A + n * NX * NX);
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NU; j++) M[i * NU + j] = G[i * NW + NX + j];
        unpack(M, NX * NU, count, B + n * NX * NU);
        running_expand(x, u, &time, &h, room + AT_THETA, room + AT_L, room + AT_LX, room + AT_LU, room + AT_LXX, room + AT_LUX,
                       room + AT_LUU, room + AT_WORK);
        unpack(room + AT_L, 1, count, cost + n);
        unpack(room + AT_LX, NX, count, q + n * NX);
        unpack(room + AT_LU, NU, count, r + n * NU);
        unpack(room + AT_LXX, NX * NX, count, Q + n * NX * NX);
        unpack(room + AT_LUX, NU * NX, count, S + n * NU * NX);
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
    unpack(room + AT_LX, NX, 1, q);
    unpack(room + AT_LXX, NX * NX, 1, Q);
}

/* Closed-loop trajectories for `count` <= LANES step lengths, one in each lane. */
EXPORT void stage_rollout(
    const int *const *ti, const double *const *td, int substeps, long N, const double *xs, const double *us, const double *dx,
    const double *du, const double *K, const double *gaps, const double *lower, const double *upper, const signed char *node,
    int nonlinear, const double *alphas, int count, const double *t, const double *dt, const double *p, const double *theta,
    const double *theta_end, double *X, double *U, double *D, double *cost, V *room)
{
    ctx_t c = {ti, td, room + AT_WORK};
    V *x = room + AT_X, *xn = room + AT_XN, *u = room + AT_U, *e = room + AT_NEXT, *w = room + AT_WORK;
    V parameters[NP + 1], weights[NT + NTT + 1], total = ZERO, l;
    const V alpha = lanes_of(alphas, count), left = 1.0 - alpha;
    for (int i = 0; i < NX; i++) x[i] = xs[i] + alpha * dx[i];
    for (long n = 0; n < N; n++) {
        for (int i = 0; i < NX; i++) e[i] = x[i] - (xs[n * NX + i] + alpha * dx[n * NX + i]);
        for (int j = 0; j < NU; j++) {
            V s = us[n * NU + j] + alpha * du[n * NU + j];
            const double *row = K + (n * NU + j) * NX;
            for (int i = 0; i < NX; i++) s += row[i] * e[i];
            if (lower) s = v_fmax(v_fmin(s, splat(upper[n * NU + j])), splat(lower[n * NU + j]));
            u[j] = s;
        }
        for (int i = 0; i < NP; i++) parameters[i] = splat(p[n * NP + i]);
        for (int i = 0; i < NT; i++) weights[i] = splat(theta[n * NT + i]);
        const V time = splat(t[n]), h = splat(dt[n]);
        running_value(x, u, &time, &h, weights, &l, w);
        total += l;
        step(c, substeps, x, u, time, h, parameters, xn);
        for (int s = 0; s < count; s++) {
            for (int i = 0; i < NX; i++) X[(s * (N + 1) + n) * NX + i] = LANE(x[i], s);
            for (int i = 0; i < NU; i++) U[(s * N + n) * NU + i] = LANE(u[i], s);
        }
        for (int i = 0; i < NX; i++) {
            V defect = ZERO, next = xn[i];
            if (node[n + 1]) {
                defect = nonlinear ? left * gaps[n * NX + i] : xn[i] - (xs[(n + 1) * NX + i] + alpha * dx[(n + 1) * NX + i]);
                next = xn[i] - defect;
            }
            x[i] = next;
            for (int s = 0; s < count; s++) D[(s * N + n) * NX + i] = LANE(defect, s);
        }
    }
    for (int s = 0; s < count; s++)
        for (int i = 0; i < NX; i++) X[(s * (N + 1) + N) * NX + i] = LANE(x[i], s);
    const V time = splat(t[N]);
    for (int i = 0; i < NTT; i++) weights[i] = splat(theta_end[i]);
    terminal_value(x, &time, weights, &l, w);
    total += l;
    for (int s = 0; s < count; s++) cost[s] = LANE(total, s);
}
