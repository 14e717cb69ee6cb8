// Gloo in the contest: its TCP transport on loopback, which is what it has within a host.
#include <cstdlib>
#include <cstring>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <vector>
#include "player.h"

namespace {
std::shared_ptr<gloo::rendezvous::Context> context;
std::vector<float> in, out;

void open_gloo(uint32_t *ret_rank, uint32_t *ret_n) {
        const char *rank = getenv("RANK"), *n = getenv("WORLD_SIZE"), *store = getenv("CONTEST_STORE");
        if (!rank || !n || !store)
                player_die("RANK, WORLD_SIZE or CONTEST_STORE");
        *ret_rank = static_cast<uint32_t>(atoi(rank));
        *ret_n = static_cast<uint32_t>(atoi(n));
        gloo::transport::tcp::attr attributes;
        attributes.iface = "lo";
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        gloo::rendezvous::FileStore files(store);
        context = std::make_shared<gloo::rendezvous::Context>(
                static_cast<int>(*ret_rank), static_cast<int>(*ret_n));
        context->connectFullMesh(files, device);
}

void prepare(const struct work *w, float **ret_in, float **ret_out) {
        in.assign(w->n_elements, 0);
        *ret_in = in.data();
        if (w->verb != VERB_ALL_REDUCE && w->verb != VERB_REDUCE)
                return;
        out.assign(w->n_elements, 0);
        *ret_out = out.data();
}

void all_reduce(float *from, float *to, size_t n) {
        void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
        gloo::AllreduceOptions o(context);
        if (from != to)
                o.setInput(from, n);
        o.setOutput(to, n);
        o.setReduceFunction(sum);
        gloo::allreduce(o);
}

void reduce(size_t n) {
        void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
        gloo::ReduceOptions o(context);
        o.setInput(in.data(), n);
        o.setOutput(out.data(), n);
        o.setRoot(0);
        o.setReduceFunction(sum);
        o.setTag(2);
        gloo::reduce(o);
}

void broadcast(size_t n) {
        gloo::BroadcastOptions o(context);
        o.setOutput(in.data(), n);
        o.setRoot(0);
        o.setTag(1);
        gloo::broadcast(o);
}

void run(const struct work *w) {
        switch (w->verb) {
        case VERB_ALL_REDUCE: all_reduce(in.data(), out.data(), w->n_elements); break;
        case VERB_ALL_REDUCE_IN_PLACE: all_reduce(in.data(), in.data(), w->n_elements); break;
        case VERB_REDUCE: reduce(w->n_elements); break;
        case VERB_BROADCAST: broadcast(w->n_elements); break;
        case VERB_BATCH:
                for (uint32_t i = 0; i < w->n_values; i++)
                        all_reduce(in.data() + w->offsets[i], in.data() + w->offsets[i], w->counts[i]);
                break;
        case N_VERBS: break;
        }
}

void close_gloo() {
        context.reset();
}
} // namespace

int main(int argc, char **argv) {
        struct library library = {};
        library.name = "Gloo";
        library.open = open_gloo;
        library.prepare = prepare;
        library.run = run;
        library.close = close_gloo;
        return player_main(argc, argv, &library);
}
