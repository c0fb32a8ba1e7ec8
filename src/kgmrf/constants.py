"""Every number of the method that the compiled core needs, and the heads of rows: declared once.

The build writes this file out as C++ (`src/core/declare.py`), the readable engines import it. It
imports nothing, so that a build needs no package. A float becomes a double, an int an int, a tuple
of floats an array; `STRUCTS` become structs of doubles with these names, in this order.
"""

INTERFACE = 1  # raise it with the arguments of the core: a core built from another file is refused

# --------------------------------------------------------------------------- what is accepted

# Entries of covariances between these have squares and reciprocals that a double can hold.
LARGEST = 1e150  # of an entry of a matrix, and of the square of a sample
SMALLEST = 1e-150  # of the largest entry of a matrix
LARGEST_SAMPLE = 1e75
FASTEST = 1e15  # angular velocity of a row: beyond, an angle has no digits left
SYMMETRY_TOLERANCE = 1e-8  # share of the largest entry (1e-4 for float32 input)
FARTHEST = 1e300  # squared distance of an observation from its forecast
LONGEST = 1e15  # units of time in one step or forecast
FEWEST_SAMPLES, MOST_SAMPLES = 1e-2, 1e15  # behind a matrix
ROTATION_TOLERANCE = 1e-6  # of R^T R - I

MISSING, OBSERVED, INVALID = 0, 1, 2  # what became of a line

# --------------------------------------------------------------------------- planes and frames

ANGLE_VARIANCE_LIMIT = 0.25  # rad^2: no angle is less certain
RATE_VARIANCE_LIMIT = 0.04  # a velocity wider than .2 rad per unit of time would alias
CORRELATION_LIMIT = 1.0 - 1e-6  # of an angle and its velocity
POLISH_EVERY = 16  # observations between two steps back to an orthonormal frame
RELATIVE_RIDGE = 1e-9
# Eigenvalues are kept above this share of the largest, so that logarithms exist. In single
# precision it is 16 times the rounding unit: less is noise.
SMALLEST_SPECTRUM = 1e-12

# --------------------------------------------------------------------------- ensemble

TAILS = (3.0, 6.0, 12.0, 1e5)  # degrees of freedom
BLEND_RATE, BLEND_LIMIT, BLEND_SHARE = 0.25, 1.0, 1e-3
TAIL_SHARE, KAPPA_GAIN, KAPPA_LIMIT = 1e-3, 0.005, 0.7
FLOOR = 1e-6  # smallest variance of a channel in a forecast, relative to its long-run level
OUTLIER = 20.0  # times the forecast size: limited members learn from no more than this
RETURN = 0.5  # share of the prior weights that comes back after an observation beyond OUTLIER
FILL_LIMIT = 4.0  # times the forecast size: how surprising cells may be that fill others
SHRINKAGE = 0.01  # observations that stand for a diagonal matrix in an average
SIZE_RETENTION, LEVEL_MEMORY = 0.98, 6000.0
EARLY = 3.0  # samples that count in full, however far they are from what the first of them promised
POOL_SAMPLES = 5.0  # samples per channel before a turning member starts
UNLIKE = 1e3  # ratio of variances above which turning members work in units of each channel

# --------------------------------------------------------------------------- young tracks

YOUTH_RATE = 1.5  # degrees of freedom that a sample brings, of the density of a young track
YOUTH_POWER = 1.25  # how its scale narrows with what is left open
YOUTH_ENDS = 5.0  # samples per channel, and twice as many more, after which a track is not young

# --------------------------------------------------------------------------- horizons and gaps

SIZE_DECAYS = 1.0  # units of time after an observation in which the size clocks decay
LEAST_GAP = 1e-6  # what a time beyond one unit must exceed: less is rounding of time stamps
HORIZON_REACH = 4.0  # a member is trusted this many times as far ahead as what it knows lasts
HORIZON_CLOCK = 5.0  # over the gain of a size clock: how long what the clock knows lasts
HORIZON_SHARE = 0.05  # of the weight that members lose: what is added for those that keep theirs
WANDER_LAGS = (4.0, 16.0, 64.0)  # rows of the averages about which the log size varies
WANDER_MEMORY = 1000.0  # rows in the variances of the log size
WANDER_CLIP, WANDER_LEAST = 16.0, 0.01  # one square counts as at most so many times the variance
WANDER_WIDENING = 1.5
WANDER_MOST = 100.0  # variance of a log size; more would overflow
SIZE_NODES = (-1.7320508075688772, 0.0, 1.7320508075688772)  # three points of a Gaussian
SIZE_SHARES = (0.16666666666666666, 0.6666666666666666, 0.16666666666666666)

# --------------------------------------------------------------------------- top clock

TOP_HALF_LIFE, TOP_GATE_HALF_LIFE = 10.0, 200.0  # of the variance along w, and of its gate
TOP_RIDGE = 10.0  # of the gate: evidence that stands for no gain
TOP_LIMIT = 9.0  # times its expectation: what one square may say

# How large observations of many samples are against what is reported for them: of one sample it is
# left to the tails, whose mean no average of few rows knows.
BIAS_GAIN, BIAS_START, BIAS_LIMIT = 0.002, 50.0, 1.1  # at least; observations it begins with

STEADY_SHARE = 0.01  # of the steadiest average in a covariance that is reported

# --------------------------------------------------------------------------- late channels

ENTER_SAMPLES = 5.0  # values that a late channel must have before it takes part
ENTER_SPREAD = 2.283185307179586  # 2 pi - 4: variance of the log of (mean |x|)^2, times n
ENTER_LEAST = 0.05  # variance of the log sizes of other channels, at least
ENTER_CONFLICT = 9.0  # squared deviations from them beyond which they say nothing of it
# E|x| of each of TAILS, of scale 1.
TAIL_ABS = (1.1026577908435844, 0.9185586535436918, 0.8524937568503042, 0.7978905449829963)

# --------------------------------------------------------------------------- low rank

LOW_RANK_LIMIT = 10.0  # times the forecast size: members learn from no more than this
LOW_RANK_METRIC_HALF_LIFE = 400.0  # of D^2, at least
LOW_RANK_POLISH_EVERY = 50  # observations between two steps back to orthonormal axes
LOW_RANK_LEAST_ROWS = 8.0  # however long a gap, this many rows remain known
LOW_RANK_PRIOR_ROWS = 2.0  # rows that the first guess of a variance is worth
LOW_RANK_MEMORY = 1.4426950408889634  # 1/log 2: rows in an average, per row of half-life
LOW_RANK_SMALLEST_FACTOR = 0.1  # at the start, in units of a channel's variance
LOW_RANK_SMALLEST_NOISE = 0.2
LOW_RANK_FOUND = 1e-12  # of the largest eigenvalue: smaller ones are rounding
LOW_RANK_LOST = 1e-12  # share of an axis that must be left when the axes before it are taken out
LOW_RANK_DEAD = 0.01  # variance of a factor from which it can come back, in units of the noise
LOW_RANK_DECAY = 0.01  # of a velocity, per unit of time
LOW_RANK_FASTEST = 10.0  # radians per unit of time that an axis turns
LOW_RANK_LONGEST = 1e12  # units of time: after longer gaps nothing is less certain
LOW_RANK_LARGEST_LOG = 100.0  # of a size s
LOW_RANK_LARGEST = 1e300  # of a squared distance; what is farther away counts as this far
# Of log x^2, x normal: mean, variance, and the variance of a sample variance times n/var^2.
LOG_SQUARE_MEAN, LOG_SQUARE_VAR, LOG_SQUARE_SPREAD = -1.2703628454614782, 4.934802200544679, 6.0
# --------------------------------------------------------------------------- rotations

REFUSED, RESTARTED, STALE = 3, 4, 5  # more that may become of a line: an outlier, a start, a repeat

ROTATION_MEMBERS = 24  # isotropic members
DENSE_MEMBERS = 12  # constant velocity and oscillators
NOISE_LEVELS = 12  # of the noise that have weights of their own, about its estimate
MEMBER_SWITCHING = 1e-3  # of a member's weight, at every observation
EXPERT_SWITCHING = 0.01
EXPERT_PRIORS = (0.25, 0.25, 0.5)  # joint weights, weights per axis, dense members
NOISE_FORGETTING = 1.0 / 250.0  # of what was learned of the noise, at every observation
LEAST_LEVEL = 1e-30  # probability of a level of the noise, so that it can return
LEVEL_LEARNING = 0.1  # how much one observation says of the noise
UNLIKELY_LEVEL = 1e-4  # levels are left out if they and their neighbours are below this
YOUNG = 6.0  # observations after which the noise counts as known
FIRST_START = 8  # observations before dense members join, where the noise is learned
LONGEST_START = 16  # observations that are kept to run them again
INTERVALS = 8  # positive intervals whose median is the unit of time
REPEATS_TAKEN, REPEATS_MISSING, REPEATS_AUTO = 0, 1, 2  # what an exact repeat of a pose is
REPEAT_ROUNDING = 1e-13  # of the numbers of a quaternion: the same but for rounding
LONGEST_REPEAT = 3.0  # repeats in a row that may be stale: a longer run is rest
REPEAT_MEMORY = 0.98  # of how frequent repeats are, at every observation
REST_MEMORY = 0.99  # of the longest run of repeats, at every observation
FREQUENT_REPEATS = 0.25  # as a share of the observations
FIRST_REPEATS = 8.0  # observations before which repeats count as frequent
UNREST_MEMORY = 0.95  # of how much a measured rate changes, at every rate
LEAST_NOISE_MEMORY = 0.98  # of the least noise of late, at every observation
JITTER_VARIANCE = 0.0015**2  # below it white fluctuation is more likely motion than noise
SMOOTHING_GAIN, YOUNG_GAIN = 0.3, 0.5  # of the variance of Z: below, smoothing gains much
TAKE, START, START_FAST = 1, 2, 3  # an observation is motion, the end of a long gap, a jump
OUTLIERS_BEFORE, OBSERVED_BEFORE = 0.25, 250.0  # pseudo-counts: outliers of all observations
OUTLIER_SHARES = (0.4, 0.1, 0.4, 0.1)  # any rotation, near ones; about one axis, near ones
JUMP_RATE = 3e-3  # of two observations in a row that are alike and far away, how many are a jump
DOUBT = 3e-3  # odds below which nothing is left open
FORECAST_LAGS = (3.0, 10.0)  # units ahead for which it is learned what forecasts earn
FORECAST_EVERY = 5.0  # units: how often one is made to be compared, at
PENDING_FORECASTS = 2  # most so many of each lag at a time
FORECAST_MEMORY = 0.95  # of what they earned, at every comparison
FORECAST_RIDGE = 6.0  # comparisons that stand for "the members are right"
FORECAST_GATE = 1.5  # of squared deviations by which it must have been right to count half
MOST_EARNED = 4.0  # by how much a factor may differ from what the members say
FAR_FORECAST = 30.0  # squared distance beyond which a forecast counts less
REGION_SQUARE, REGION_MISSED = 7.814727903251179, 0.05  # chi-squared of three: how often beyond
SPREAD_STEP = 0.6  # of the log spread, for a forecast that was outside of its region
LEAST_SPREAD, WIDEST_SPREAD = 0.7, 1e3
FIRST_SPREAD = 0.5  # share of the log spread of the first lag that holds at one unit
USUAL_RATE_MEMORY, USUAL_MEMORY = 10.0, 100.0  # units, of the usual velocity and rotation
WIDEST_ANGLE = 9.869604401089358  # pi^2: no angle is less certain
DENSE_WIDEST_ANGLE = 3.289868133696453  # pi^2 / 3
LONGEST_GAP = 64.0  # units; after a longer one dense members start again
LONGEST_STEP = 1e9  # units; of a longer one nothing more is known
LEAST_RELATIVE_NOISE, MOST_RELATIVE_NOISE = 1e-60, 1e30  # 1 / n_samples of an observation
LOWEST_FREQUENCY, HIGHEST_FREQUENCY = 6.283185307179586e-05, 2.984513020910304  # rad per unit

# --------------------------------------------------------------------------- alarms

ALARM_BETS = 3  # CUSUMs: for changes of one row, of some and of many
ALARM_QUIET, ALARM_BEGINS, ALARM_LASTS, ALARM_ENDS = 0, 1, 2, 3  # what became of a row
ALARM_CALM = 0.5  # of the threshold: an alarm ends when all sums are below
ALARM_LEAST = 1e-300  # smaller p-values count as this

# --------------------------------------------------------------------------- signals

TIME_SCALE_LONG = 1024.0  # half-life of the longer of two averages, in units of the shorter
TIME_SCALE_PRIOR = 0.2  # weight of the shorter at the start
TIME_SCALE_RIDGE = 1e-9  # of its variance, added to a channel before a matrix is inverted
SPREAD_GAIN = 0.02  # least share of the newest in the usual squared distance of matrices
SPREAD_LIMIT = 4.0  # times the usual one that a distance counts at most, after SPREAD_START
SPREAD_START = 10

# --------------------------------------------------------------------------- linear mean

MEAN_HALF_LIFE = 1000.0  # of its regression, rows
MEAN_RIDGE = 10.0
MEAN_LAG_LIMIT = 8.0  # deviations that a lag counts at most
MEAN_GATE_HALF_LIFE = 200.0
MEAN_GATE_RIDGE = 10.0
MEAN_NU = 6.0  # degrees of freedom of the weight of a row
MEAN_NOISE_HALF_LIFE = 64.0  # of the variances of what is left

# --------------------------------------------------------------------------- heads of rows

STRUCTS = {
    # time of the row and of its last observation, observations, samples, log of the factor between
    # S and the scale of the density, observations pooled by the turning members (low rank: rows in
    # the buffer); of the last observation: log-likelihood, squared distance m z, number of values
    # m d, standard deviation of the log size of its forecast (0 one step ahead), and what the
    # youth of the track left open of it (kgmrf.youth)
    "Head": (
        "time",
        "seen",
        "count",
        "samples",
        "kappa",
        "pooled",
        "likelihood",
        "distance",
        "values",
        "size_std",
        "doubt",
    ),
    # an alarm: rows that came; whether it is on, the row of its onset and that of its last
    # evidence; sums of the CUSUMs, and the row in which each last left zero
    "AlarmRow": (
        "count",
        "inside",
        "onset",
        "last",
        "sum_1",
        "sum_2",
        "sum_3",
        "start_1",
        "start_2",
        "start_3",
    ),
    # one line of the table of members; horizon: how long what it knows lasts; heir: 1 and 2 for the
    # members that inherit the weight of the others beyond it (kgmrf.engines.horizon)
    "MemberLine": (
        "kind",
        "half_life",
        "size_gain",
        "channel_half_life",
        "clip_outliers",
        "acceleration",
        "spectrum_rate",
        "rate_prior",
        "root",
        "horizon",
        "heir",
    ),
    # how quickly the weights and kappa of an ensemble learn: BLEND_RATE, KAPPA_GAIN; what the
    # probabilities of TAILS return to
    "Learning": ("blend_rate", "kappa_gain", "tail_1", "tail_2", "tail_3", "tail_4"),
    # one line of the table of low-rank members; states: r, or 2 r with velocity; stages: numbers of
    # rows after which the axes start again
    "FactorsLine": (
        "rank",
        "angle_noise",
        "noise_half_life",
        "spectrum_half_life",
        "size_gain",
        "acceleration",
        "states",
        "root",
        "stage_1",
        "stage_2",
        "stage_3",
        "stage_4",
        "horizon",
        "heir",
    ),
    # numbers of a low-rank member: log size s, and the rows that are in psi, D^2 and Lam
    "FactorsNumbers": ("size", "noise_rows", "metric_rows", "spectrum_rows"),
    # a single law: time of the row and of its last observation, steps, samples and observations
    # pooled at the cold start, log of the size, its variance; of the last observation: squared
    # distance of all planes, log-likelihood
    "LawHead": (
        "time",
        "seen",
        "steps",
        "pooled_samples",
        "pooled_steps",
        "log_scale",
        "scale_var",
        "nis",
        "log_likelihood",
    ),
    # numbers of law_state.Model; ridge NaN: relative; information, known (the spectrum is given)
    # and rotation are 0 or 1
    "LawSettings": (
        "information",
        "noise_floor",
        "spectrum_rate",
        "scale_rate",
        "scale_retention",
        "pool_samples",
        "pool_steps",
        "ridge",
        "known",
        "rotation",
        "limit",
        "rate_limit",
    ),
    # signals on a time scale: rows that are judged ahead, rows taken in, judgements, usual scatter
    # of their matrices, effective samples of one, rows gathered for the next, weight of the short
    # average, effective rows in the averages
    "TimeScaleHead": (
        "horizon",
        "count",
        "judged",
        "spread",
        "samples",
        "gathered",
        "weight",
        "mass_short",
        "mass_long",
    ),
    # a mean that is linear in the last rows: rows, sums of the gate
    "LinearMeanHead": ("count", "gate", "slope"),
    # what an interval does under a law: kgmrf.model.gains.Transition, then its length
    "LawStep": ("turn", "keep", "coast", "angle", "cross", "rate", "dt"),
    # time of the row and of its last observation; whether the last observation was refused;
    # observations and outliers among them so far; of an observation that is left open: what
    # it is if it is no outlier (TAKE, START, START_FAST, 0: none is open), log odds that it is one,
    # its relative noise, time since it; relative noise of the last observation, 0 after a step
    # without; variance of the noise, gain of the last step; unit of time and how many
    # intervals are known; number of the lowest level of the noise with weights of its own, -1
    # before the first innovation; observations until the noise counts as known, 1 over its least
    # value of late; first observations that are kept; time since a rate was measured (-1: never),
    # variance by which the rate changes per unit of the stamps; since an observation was left open:
    # variance of the angle by steps whose rate was not known; exact repeats in a row, share of
    # observations that are repeats of late, longest run of them of late; observations since the
    # last start
    "RotationHead": (
        "time",
        "seen",
        "refused",
        "observed",
        "outliers",
        "open",
        "odds",
        "open_noise",
        "behind",
        "now",
        "noise",
        "gain",
        "unit",
        "intervals",
        "base",
        "young",
        "precision",
        "stored",
        "held",
        "unrest",
        "walk",
        "repeats",
        "repeated",
        "longest",
        "followed",
    ),
    # of a forecast that waits to come due: its time and frame, the turns that it and the usual
    # velocity say, the way back to the usual rotation, its variance (0: there is none)
    "PendingForecast": (
        "time",
        "w",
        "x",
        "y",
        "z",
        "turn_x",
        "turn_y",
        "turn_z",
        "rate_x",
        "rate_y",
        "rate_z",
        "back_x",
        "back_y",
        "back_z",
        "variance",
    ),
    # of a lag: normal equations of the regression and their weight, what it says, how far that
    # agreed with what came and how much it was, log of what the variance of forecasts is
    # multiplied by
    "Earned": (
        "a11",
        "a12",
        "a13",
        "a22",
        "a23",
        "a33",
        "b1",
        "b2",
        "b3",
        "count",
        "first",
        "second",
        "third",
        "agreed",
        "offered",
        "log_spread",
    ),
    # unit of time or 0, variance of jitter or 0, whether rates are measured (then the unit is the
    # time between observations), what exact repeats are, number of levels (1: the noise
    # is given); their variances, priors and priors^NOISE_FORGETTING come after it
    "RotationSettings": ("unit", "jitter", "rated", "repeats", "n_levels"),
    # an isotropic member: variance of the acceleration, decay g, variance of the velocity at the
    # start, variance of white jitter, all over that of the noise; its prior weight for all axes
    # together, for each axis
    "IsotropicLaw": ("acceleration", "decay", "rate_prior", "jitter", "joint", "each"),
    # a dense member: frequency and variance of the velocity at the start of each axis, standard
    # deviation of the log frequency, acceleration, prior weight
    "DenseLaw": (
        "frequency_x",
        "frequency_y",
        "frequency_z",
        "log_std",
        "rate_x",
        "rate_y",
        "rate_z",
        "acceleration",
        "prior",
    ),
}
