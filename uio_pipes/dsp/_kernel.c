/* Features of a waveform, frame by frame: mean, pre-emphasis, window, Fourier transform, bands, logarithm, cosines.
 *
 * LANES frames lie side by side in the lanes of vectors, and every lane does the same operations of IEEE 754 in the same
 * order, whatever the vectors' width: so the bits are equal on every CPU. That holds if nothing is contracted or
 * reordered (-ffp-contract=off, no -ffast-math). `frames.py` makes the constants, and does the same operations by NumPy
 * where this could not be compiled. Between the samples and the features nothing is larger than a cache. `cascade` is
 * what `filters.py` does in Python where it must.
 */
#ifndef LANES /* the file itself; it includes what stands below for each width of vectors */
#ifndef KERNEL_ALONE /* a test compiles it for other CPUs, without Python */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define MOST_SECTIONS 8
#define INLINE static inline __attribute__((always_inline))
#define JOINED(a, b) a##b
#define NAMED(name, lanes) JOINED(name, lanes)
#define OF(name) NAMED(name, LANES) /* vec8, stage8, … */

/* What frames.py packs: pointers, then whole numbers, in this order. */
typedef struct {
    const float *window;    /* (width) */
    const float *twiddles;  /* of each stage (see there), as pairs */
    const float *unpacking; /* (size / 2 + 1, 2): -i exp(-i pi k / size) */
    const int32_t *bands;   /* (bands, 2): the first bin, and how many */
    const float *weights;   /* of all bands, one after the other */
    const float *cosines;   /* (bands, outputs); NULL: the outputs are the bands */
    const int32_t *radices; /* (stages): their product is the size */
    const int32_t *places;  /* (size): where the transform leaves each bin */
    int64_t width;          /* samples of a frame, at most 2 * size */
    int64_t shift;          /* samples from one frame to the next */
    int64_t size;           /* of the complex transform: half of the real one */
    int64_t stages;
    int64_t count;          /* of bands */
    int64_t outputs;        /* values of a frame */
    int64_t kaldi;          /* 1: mean and pre-emphasis; 0: neither */
    float emphasis;
    float floor;            /* of a band, before the logarithm */
} Plan;

typedef float any_float __attribute__((aligned(1))); /* at any address, as samples in a file's bytes are */
typedef int16_t any_int16 __attribute__((aligned(1)));

typedef struct {
    const any_float *floats;   /* samples in [-1, 1], or NULL */
    const any_int16 *ints;     /* samples of 16 bits, of which 1 / 32768 is meant */
    const any_float *noise[2]; /* to be added, times dither; or NULL, or one of them */
    float dither;
    int64_t frames;
    float *out;             /* (frames, outputs) */
} Job;

typedef float four __attribute__((vector_size(16), aligned(4))); /* at any address */
#ifdef __clang__
#define MIXED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t ifour __attribute__((vector_size(16)));
#define MIXED(a, b, ...) __builtin_shuffle(a, b, (ifour){__VA_ARGS__})
#endif

/* Turns rows into columns: what is in row r and column c of `from` comes to row c and column r of `to`. */
static void turn(const float *from, int64_t from_pitch, int64_t rows, int64_t columns, float *to, int64_t to_pitch) {
    for (int64_t r = 0; r < rows; r += 4)
        for (int64_t c = 0; c < columns; c += 4) {
            const float *in = from + r * from_pitch + c;
            float *out = to + c * to_pitch + r;
            if (r + 4 <= rows && c + 4 <= columns) {
                four x[4];
                for (int i = 0; i < 4; i++) x[i] = *(const four *)(in + i * from_pitch);
                four a = MIXED(x[0], x[1], 0, 4, 1, 5), b = MIXED(x[2], x[3], 0, 4, 1, 5);
                four d = MIXED(x[0], x[1], 2, 6, 3, 7), e = MIXED(x[2], x[3], 2, 6, 3, 7);
                *(four *)out = MIXED(a, b, 0, 1, 4, 5);
                *(four *)(out + to_pitch) = MIXED(a, b, 2, 3, 6, 7);
                *(four *)(out + 2 * to_pitch) = MIXED(d, e, 0, 1, 4, 5);
                *(four *)(out + 3 * to_pitch) = MIXED(d, e, 2, 3, 6, 7);
            } else
                for (int64_t i = 0; i < 4 && r + i < rows; i++)
                    for (int64_t j = 0; j < 4 && c + j < columns; j++) out[j * to_pitch + i] = in[i * from_pitch + j];
        }
}

#define LANES 4
#define TARGET
#include "_kernel.c"
#ifdef SPLIT /* a test has wide vectors made of those that the CPU has */
#define WITH(features)
#define HAS(feature) 1
#else
#define WITH(features) __attribute__((target(features)))
#define HAS(feature) __builtin_cpu_supports(feature)
#endif
#if defined(__x86_64__) || defined(SPLIT)
#define LANES 8
#define TARGET WITH("avx2")
#include "_kernel.c"
#define LANES 16
#define TARGET WITH("avx512f,avx512dq")
#include "_kernel.c"
#endif

/* The widest vectors that the CPU has are taken, but of at most so many lanes. */
static int run(const Plan *plan, const Job *job, int lanes) {
#if defined(__x86_64__) || defined(SPLIT)
    if (lanes >= 16 && HAS("avx512dq")) return run_all_16(plan, job);
    if (lanes >= 8 && HAS("avx2")) return run_all_8(plan, job);
#endif
    return run_all_4(plan, job);
}

#ifndef KERNEL_ALONE
/* Arrays are NumPy's, whose memory `y#` finds without an object for its address. */
static PyObject *features(PyObject *self, PyObject *args) {
    const char *plan, *samples, *noise[2], *out;
    Py_ssize_t plan_size, sizes[3], out_size;
    int whole, lanes, done;
    Plan p;
    Job j = {0};
    if (!PyArg_ParseTuple(args, "y#y#pz#z#fy#i", &plan, &plan_size, &samples, &sizes[0], &whole, &noise[0], &sizes[1],
                          &noise[1], &sizes[2], &j.dither, &out, &out_size, &lanes)) return NULL;
    if (plan_size != sizeof(Plan)) {
        PyErr_SetString(PyExc_ValueError, "the plan is not packed as this kernel was built to read it");
        return NULL;
    }
    memcpy(&p, plan, sizeof p);
    j.frames = out_size / (4 * p.outputs), j.out = (float *)out;
    int64_t length = sizes[0] / (whole ? 2 : 4);
    int fits = j.frames > 0 && (j.frames - 1) * p.shift + p.width <= length;
    for (int i = 0; i < 2; i++) fits = fits && (!noise[i] || sizes[1 + i] == 4 * length);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "samples, noise and frames do not fit each other");
        return NULL;
    }
    if (whole) j.ints = (const any_int16 *)samples;
    else j.floats = (const any_float *)samples;
    for (int i = 0; i < 2; i++) j.noise[i] = (const any_float *)noise[i];
    Py_BEGIN_ALLOW_THREADS
    done = run(&p, &j, lanes);
    Py_END_ALLOW_THREADS
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* Whole numbers of 16 bits as floats into a row of a batch, and padding behind them: past the cache where that can be,
 * since nobody reads the row before the batch is whole. */
static void put(const any_int16 *in, float *out, int64_t count, int64_t room, float padding) {
    int64_t i = 0;
#if defined(__SSE2__)
    const __m128 scale = _mm_set1_ps(1.0f / 32768), rest = _mm_set1_ps(padding);
    for (; i < count && (uintptr_t)(out + i) % 16; i++) out[i] = (float)in[i] * (1.0f / 32768);
    for (; i + 8 <= count; i += 8) {
        const __m128i eight = _mm_loadu_si128((const __m128i *)(in + i));
        const __m128i low = _mm_srai_epi32(_mm_unpacklo_epi16(eight, eight), 16);
        const __m128i high = _mm_srai_epi32(_mm_unpackhi_epi16(eight, eight), 16);
        _mm_stream_ps(out + i, _mm_mul_ps(_mm_cvtepi32_ps(low), scale));
        _mm_stream_ps(out + i + 4, _mm_mul_ps(_mm_cvtepi32_ps(high), scale));
    }
#endif
    for (; i < count; i++) out[i] = (float)in[i] * (1.0f / 32768);
#if defined(__SSE2__)
    for (; i < room && (uintptr_t)(out + i) % 16; i++) out[i] = padding;
    for (; i + 4 <= room; i += 4) _mm_stream_ps(out + i, rest);
    _mm_sfence();
#endif
    for (; i < room; i++) out[i] = padding;
}

static PyObject *put_row(PyObject *self, PyObject *args) {
    const char *in, *out;
    Py_ssize_t in_size, out_size;
    float padding;
    if (!PyArg_ParseTuple(args, "y#y#f", &in, &in_size, &out, &out_size, &padding)) return NULL;
    if (in_size / 2 > out_size / 4) {
        PyErr_SetString(PyExc_ValueError, "the row is shorter than the samples");
        return NULL;
    }
    put((const any_int16 *)in, (float *)out, in_size / 2, out_size / 4, padding);
    Py_RETURN_NONE;
}

/* Filters by second-order sections, one after the other: (count, 5) of b0, b1, b2, a1, a2. */
INLINE void filter(const any_float *in, any_float *out, int64_t samples, const double *c, int count, double normal) {
    double z[2 * MOST_SECTIONS] = {0};
    for (int64_t n = 0; n < samples; n++) {
        double x = (double)in[n] + normal;
        for (int s = 0; s < count; s++) {
            double y = c[5 * s] * x + z[2 * s];
            z[2 * s] = (c[5 * s + 1] * x + z[2 * s + 1]) - c[5 * s + 3] * y;
            z[2 * s + 1] = c[5 * s + 2] * x - c[5 * s + 4] * y;
            x = y;
        }
        out[n] = (float)x;
    }
}

static PyObject *cascade(PyObject *self, PyObject *args) {
    const char *in, *sections, *out;
    Py_ssize_t in_size, sections_size, out_size;
    double normal, c[5 * MOST_SECTIONS];
    if (!PyArg_ParseTuple(args, "y#y#dy#", &in, &in_size, &sections, &sections_size, &normal, &out, &out_size))
        return NULL;
    if (in_size != out_size || sections_size > (Py_ssize_t)sizeof c || sections_size % 40) {
        PyErr_SetString(PyExc_ValueError, "samples, sections and outputs do not fit each other");
        return NULL;
    }
    memcpy(c, sections, sections_size);
    int count = (int)(sections_size / 40);
    Py_BEGIN_ALLOW_THREADS
    if (count == 4) filter((const any_float *)in, (any_float *)out, in_size / 4, c, 4, normal);
    else if (count == 2) filter((const any_float *)in, (any_float *)out, in_size / 4, c, 2, normal);
    else filter((const any_float *)in, (any_float *)out, in_size / 4, c, count, normal);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"features", features, METH_VARARGS, NULL}, {"put_row", put_row, METH_VARARGS, NULL},
    {"cascade", cascade, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "The compiled kernel of frames.py and filters.py.", 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&module); }
#endif

#else /* for one width of vectors */

#define vec OF(vec_)
#define ivec OF(ivec_)
#define loose OF(loose_)
#define cvec OF(cvec_)
#define at OF(at_)
#define logarithm OF(logarithm_)
#define add OF(add_)
#define sub OF(sub_)
#define minus_i OF(minus_i_)
#define scaled OF(scaled_)
#define times OF(times_)
#define butterfly2 OF(butterfly2_)
#define butterfly4 OF(butterfly4_)
#define butterfly5 OF(butterfly5_)
#define stage OF(stage_)
#define transform OF(transform_)
#define powers OF(powers_)
#define samples_of OF(samples_of_)
#define lay_out OF(lay_out_)
#define windowed OF(windowed_)
#define bands_of OF(bands_of_)
#define cosines_of OF(cosines_of_)
#define run_all OF(run_all_)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4))); /* at any address */
typedef struct { vec re, im; } cvec;

INLINE TARGET vec at(const float *place) { return (vec) * (const loose *)place; }

/* The natural logarithm of normal numbers above 0: Cephes' polynomial, within 1 unit in the last place. */
INLINE TARGET vec logarithm(vec x) {
    ivec bits = (ivec)x;
    ivec exponent = (bits >> 23) - 126;
    vec m = (vec)((bits & 0x007fffff) | 0x3f000000); /* in [0.5, 1) */
    ivec low = m < 0.707106781186547524f;            /* -1 or 0 */
    exponent += low;
    m = m + (vec)((ivec)m & low) - 1.0f;
    vec e = __builtin_convertvector(exponent, vec), z = m * m;
    vec y = m * 7.0376836292e-2f + -1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m + -1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m + -1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m + -2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    return ((m + y) + e * 0.693359375f) + (x - x); /* what is not a number stays that */
}

INLINE TARGET cvec add(cvec a, cvec b) { return (cvec){a.re + b.re, a.im + b.im}; }
INLINE TARGET cvec sub(cvec a, cvec b) { return (cvec){a.re - b.re, a.im - b.im}; }
INLINE TARGET cvec minus_i(cvec a) { return (cvec){a.im, -a.re}; }
INLINE TARGET cvec scaled(cvec a, float by) { return (cvec){a.re * by, a.im * by}; }
INLINE TARGET cvec times(cvec a, const float *w) { return (cvec){a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]}; }

INLINE TARGET void butterfly2(cvec *x) {
    cvec a = x[0], b = x[1];
    x[0] = add(a, b), x[1] = sub(a, b);
}

INLINE TARGET void butterfly4(cvec *x) {
    cvec a = add(x[0], x[2]), b = sub(x[0], x[2]), c = add(x[1], x[3]), d = minus_i(sub(x[1], x[3]));
    x[0] = add(a, c), x[1] = add(b, d), x[2] = sub(a, c), x[3] = sub(b, d);
}

INLINE TARGET void butterfly5(cvec *x) {
    const float c1 = 0.309016994374947424f, c2 = -0.809016994374947424f;
    const float s1 = 0.951056516295153572f, s2 = 0.587785252292473129f;
    cvec a = add(x[1], x[4]), b = add(x[2], x[3]), c = sub(x[1], x[4]), d = sub(x[2], x[3]);
    cvec e = add(add(x[0], scaled(a, c1)), scaled(b, c2)), f = add(add(x[0], scaled(a, c2)), scaled(b, c1));
    cvec g = minus_i(add(scaled(c, s1), scaled(d, s2))), h = minus_i(sub(scaled(c, s2), scaled(d, s1)));
    x[0] = add(add(x[0], a), b);
    x[1] = add(e, g), x[4] = sub(e, g), x[2] = add(f, h), x[3] = sub(f, h);
}

/* One stage of the transform, in place (decimation in frequency). `w`: its twiddles, (groups, radix - 1), then, of radices
 * other than 2, 4 and 5, the roots of unity, (radix). `room`: for as many values as the radix. */
INLINE TARGET void stage(cvec *z, cvec *room, const float *w, int radix, int64_t groups, int64_t blocks) {
    const float *roots = w + 2 * groups * (radix - 1);
    for (int64_t p = 0; p < groups; p++, w += 2 * (radix - 1))
        for (int64_t block = 0; block < blocks; block++) {
            cvec *place = z + p + block * groups * radix, few[5], *x = radix > 5 ? room : few;
            for (int j = 0; j < radix; j++) x[j] = place[groups * j];
            if (radix == 4) butterfly4(x);
            else if (radix == 2) butterfly2(x);
            else if (radix == 5) butterfly5(x);
            for (int k = 0; k < radix; k++) {
                cvec sum = radix <= 5 && radix != 3 ? x[k] : x[0];
                if (radix == 3 || radix > 5)
                    for (int j = 1; j < radix; j++) sum = add(sum, times(x[j], roots + 2 * ((int64_t)j * k % radix)));
                place[groups * k] = k == 0 || groups == 1 ? sum : times(sum, w + 2 * (k - 1));
            }
        }
}

INLINE TARGET void transform(const Plan *plan, cvec *z, cvec *room) {
    const float *w = plan->twiddles;
    int64_t left = plan->size, blocks = 1;
    for (int64_t s = 0; s < plan->stages; s++) {
        int radix = plan->radices[s];
        int64_t groups = left / radix;
        if (radix == 4) stage(z, room, w, 4, groups, blocks);
        else if (radix == 2) stage(z, room, w, 2, groups, blocks);
        else if (radix == 5) stage(z, room, w, 5, groups, blocks);
        else stage(z, room, w, radix, groups, blocks);
        w += 2 * groups * (radix - 1) + (radix == 3 || radix > 5 ? 2 * radix : 0);
        left = groups, blocks *= radix;
    }
}

/* Four times the squared magnitudes of the real transform, bins 0 to size. */
INLINE TARGET void powers(const Plan *plan, const cvec *z, vec *out) {
    int64_t n = plan->size;
    for (int64_t k = 0; 2 * k <= n; k++) {
        cvec p = z[plan->places[k]], q = z[plan->places[k ? n - k : 0]];
        cvec sum = {p.re + q.re, p.im - q.im}, difference = {p.re - q.re, p.im + q.im};
        cvec turned = times(difference, plan->unpacking + 2 * k);
        cvec low = add(sum, turned), high = sub(sum, turned);
        out[k] = low.re * low.re + low.im * low.im;
        out[n - k] = high.re * high.re + high.im * high.im;
    }
}

/* Samples as floats, with their noise. */
INLINE TARGET void samples_of(const Job *job, int64_t from, int64_t count, float *restrict to) {
    for (int64_t n = 0; job->floats && n < count; n++) to[n] = job->floats[from + n];
    for (int64_t n = 0; job->ints && n < count; n++) to[n] = (float)job->ints[from + n] * (1.0f / 32768.0f);
    const float dither = job->dither;
    for (int i = 0; i < 2 && job->noise[i]; i++)
        for (int64_t n = 0; n < count; n++) to[n] = to[n] + job->noise[i][from + n] * dither;
}

/* Lays out the samples of LANES frames: sample n of frame f is at row n % shift, column f + n / shift. `four_columns` has
 * room for those. What stands behind the last frame is of frames before, and nobody asks for it. */
INLINE TARGET void lay_out(
    const Plan *plan, const Job *job, int64_t first, int64_t frames, int64_t pitch, float *four_columns, float *rows
) {
    int64_t shift = plan->shift, end = (first + frames - 1) * shift + plan->width;
    for (int64_t column = 0; column < pitch; column += 4) {
        for (int64_t c = 0, from = (first + column) * shift; c < 4; c++, from += shift)
            samples_of(job, from, end - from < shift ? end - from : shift, four_columns + c * shift);
        turn(four_columns, shift, 4, shift, rows + column, pitch);
    }
}

/* Mean, pre-emphasis and window of LANES frames, from rows to (width) vectors. */
INLINE TARGET void windowed(const Plan *plan, const float *rows, int64_t pitch, vec *out) {
    int64_t width = plan->width, shift = plan->shift;
    vec mean = {0}, before = {0};
    if (plan->kaldi) {
        vec sums[4] = {{0}, {0}, {0}, {0}}, start = at(rows); /* of differences: a constant has no rounding */
        for (int64_t first = 0, column = 0; first < width; first += shift, column++) {
            int64_t n = 0, count = width - first < shift ? width - first : shift;
            for (; first % 4 == 0 && n + 4 <= count; n += 4) /* the usual case: sums in registers */
                for (int i = 0; i < 4; i++) sums[i] += at(rows + (n + i) * pitch + column) - start;
            for (; n < count; n++) sums[(first + n) & 3] += at(rows + n * pitch + column) - start;
        }
        mean = start + ((sums[0] + sums[1]) + (sums[2] + sums[3])) / (float)width;
        before = at(rows) - mean; /* the first sample is its own predecessor */
    }
    for (int64_t first = 0, column = 0; first < width; first += shift, column++)
        for (int64_t n = 0; n < shift && first + n < width; n++) {
            vec x = at(rows + n * pitch + column);
            if (plan->kaldi) {
                x = x - mean;
                vec emphasized = x - before * plan->emphasis;
                before = x, x = emphasized;
            }
            out[first + n] = x * plan->window[first + n];
        }
}

INLINE TARGET void bands_of(const Plan *plan, const vec *power, vec *out) {
    const float *weights = plan->weights;
    const vec low = (vec){0} + plan->floor;
    for (int64_t band = 0; band < plan->count; band++) {
        const vec *p = power + plan->bands[2 * band], *end = p + plan->bands[2 * band + 1];
        vec sum = {0};
        while (p < end) sum += *p++ * *weights++;
        ivec below = sum < low;
        out[band] = (vec)(((ivec)low & below) | ((ivec)sum & ~below));
    }
    for (int64_t band = 0; band < plan->count; band++) out[band] = logarithm(out[band]); /* several are under way at once */
}

INLINE TARGET void cosines_of(const Plan *plan, const vec *bands, vec *out) {
    for (int64_t k = 0; k < plan->outputs; k++) {
        vec sum = {0};
        for (int64_t band = 0; band < plan->count; band++) sum += bands[band] * plan->cosines[band * plan->outputs + k];
        out[k] = sum;
    }
}

static TARGET int run_all(const Plan *plan, const Job *job) {
    int64_t columns = LANES + (plan->width - 1) / plan->shift, pitch = (columns + 3) / 4 * 4;
    size_t room = sizeof(cvec) * plan->size, power = sizeof(vec) * (plan->size + 1), some = sizeof(vec) * plan->count;
    size_t laid = sizeof(float) * (plan->shift * pitch + LANES), four_columns = sizeof(float) * 4 * plan->shift;
    char *memory = aligned_alloc(64, (2 * room + power + 2 * some + laid + four_columns + 63) / 64 * 64);
    if (!memory) return 0;
    cvec *z = (cvec *)memory, *other = z + plan->size;
    vec *squares = (vec *)(other + plan->size), *bands = squares + plan->size + 1, *values = bands + plan->count;
    float *rows = (float *)(values + plan->count), *behind = rows + plan->shift * pitch + LANES;
    memset(rows, 0, laid + four_columns);
    for (int64_t first = 0; first < job->frames; first += LANES) {
        int64_t frames = job->frames - first < LANES ? job->frames - first : LANES;
        lay_out(plan, job, first, frames, pitch, behind, rows);
        windowed(plan, rows, pitch, (vec *)z);
        memset((vec *)z + plan->width, 0, room - sizeof(vec) * plan->width);
        transform(plan, z, other);
        powers(plan, z, squares);
        bands_of(plan, squares, bands);
        if (plan->cosines) cosines_of(plan, bands, values);
        const vec *made = plan->cosines ? values : bands;
        turn((const float *)made, LANES, plan->outputs, frames, job->out + first * plan->outputs, plan->outputs);
    }
    free(memory);
    return 1;
}

#undef LANES
#undef TARGET
#undef vec
#undef ivec
#undef loose
#undef cvec
#undef at
#undef logarithm
#undef add
#undef sub
#undef minus_i
#undef scaled
#undef times
#undef butterfly2
#undef butterfly4
#undef butterfly5
#undef stage
#undef transform
#undef powers
#undef samples_of
#undef lay_out
#undef windowed
#undef bands_of
#undef cosines_of
#undef run_all
#endif
