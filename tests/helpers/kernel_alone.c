/* The kernel of features without Python, for any CPU: reads a plan and samples from a file, writes features to another.
 *
 * File: seven arrays (of which "cosines" may be empty), each as its number of bytes and these; the numbers of the plan; the
 * number of samples, then samples and two noises as floats; dither; the number of frames.
 */
#define KERNEL_ALONE
#include "_kernel.c"
#include <stddef.h>
#include <stdio.h>

static void *part(FILE *file, int64_t size) {
    void *data = size ? malloc(size) : NULL;
    if (size && fread(data, 1, size, file) != (size_t)size) exit(3);
    return data;
}

static void *array(FILE *file) {
    int64_t *size = part(file, 8);
    return part(file, *size);
}

static void *anywhere(FILE *file, int64_t count) { /* floats at an odd address, as in a file that is read at an offset */
    char *data = malloc(4 * count + 1);
    return fread(data + 1, 4, count, file) == (size_t)count ? data + 1 : (exit(3), NULL);
}

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    Plan plan;
    Job job = {0};
    if (argc != 4 || !in || !out) return 2;
    plan.window = array(in), plan.twiddles = array(in), plan.unpacking = array(in), plan.bands = array(in);
    plan.weights = array(in), plan.cosines = array(in), plan.radices = array(in), plan.places = array(in);
    memcpy(&plan.width, part(in, sizeof plan - offsetof(Plan, width)), sizeof plan - offsetof(Plan, width));
    int64_t samples = *(int64_t *)part(in, 8);
    job.floats = anywhere(in, samples), job.noise[0] = anywhere(in, samples), job.noise[1] = anywhere(in, samples);
    job.dither = *(float *)part(in, 4);
    job.frames = *(int64_t *)part(in, 8);
    job.out = malloc(4 * job.frames * plan.outputs);
    if (!run(&plan, &job, atoi(argv[3]))) return 4;
    fwrite(job.out, 4, job.frames * plan.outputs, out);
    return fclose(out);
}
