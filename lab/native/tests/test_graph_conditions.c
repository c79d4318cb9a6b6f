/* Conditions of graphs, and graphs within graphs: what may be in them, what runs, and how they are shown. */
#include "check.h"

struct condition { unsigned long long handle; int type; unsigned size; CUgraph *bodies; CUcontext context; };
struct child { CUgraph graph; int ownership; };
struct fill { CUdeviceptr dst; size_t pitch; unsigned value, element; size_t width, height; void *context; };
struct host { void (*fn)(void *); void *data; };
typedef struct {
    int type, reserved[3];
    union { struct condition condition; struct child child; struct fill fill; struct host host; char bytes[232]; };
    long long reserved2;
} Params;
_Static_assert(sizeof(Params) == 256, "as cuda.h has it");
enum { FILL = 2, HOST = 3, CHILD = 4, CONDITION = 13, IF = 0, WHILE = 1, SWITCH = 2, MOVE = 1 };

CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphDestroyNode(void *);
CUresult cuGraphGetEdges(CUgraph, void **, void **, size_t *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphAddNode(void **, CUgraph, void *const *, size_t, Params *);
CUresult cuGraphAddEmptyNode(void **, CUgraph, void *const *, size_t);
CUresult cuGraphAddChildGraphNode(void **, CUgraph, void *const *, size_t, CUgraph);
CUresult cuGraphConditionalHandleCreate(unsigned long long *, CUgraph, CUcontext, unsigned, unsigned);
CUresult cuGraphDebugDotPrint(CUgraph, const char *, unsigned);
CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, void *const *, const void *, size_t, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);

/* Into a new graph; the bodies are where the node's parameters say. */
static Params conditional(CUgraph graph, int type, unsigned size, unsigned initial)
{
    Params p = {.type = CONDITION, .condition = {.type = type, .size = size}};
    void *node;
    OK(cuGraphConditionalHandleCreate(&p.condition.handle, graph, NULL, initial, 1));
    OK(cuGraphAddNode(&node, graph, NULL, 0, &p));
    return p;
}

/* A body that writes a number, which is what is there when the graph has run. */
static void writes(CUgraph body, CUdeviceptr to, unsigned number)
{
    void *node;
    OK(cuGraphAddNode(&node, body, NULL, 0, &(Params){.type = FILL, .fill = {.dst = to, .value = number, .element = 4, .width = 1, .height = 1}}));
}

static void the_body_that_fits_what_a_condition_begins_with_runs(void)
{
    fresh_machine("virtual=1");
    begin(0);
    static const struct { int type; unsigned size, initial, written; } cases[] = {
        {IF, 1, 0, 0}, {IF, 1, 7, 1}, {IF, 2, 0, 2}, {IF, 2, 1, 1}, {WHILE, 1, 0, 0}, {WHILE, 1, 1, 1},
        {SWITCH, 3, 0, 1}, {SWITCH, 3, 2, 3}, {SWITCH, 3, 99, 0},
    };
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 4));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUgraph g;
        CUgraphExec e;
        unsigned number = 99;
        OK(cuMemsetD32_v2(p, 0, 1));
        OK(cuGraphCreate(&g, 0));
        Params c = conditional(g, cases[i].type, cases[i].size, cases[i].initial);
        for (unsigned j = 0; j < cases[i].size; j++)
            writes(c.condition.bodies[j], p, j + 1);
        OK(cuGraphInstantiateWithFlags(&e, g, 0));
        OK(cuGraphLaunch(e, NULL));
        OK(cuCtxSynchronize());
        OK(cuMemcpyDtoH_v2(&number, p, 4));
        EQUAL(number, cases[i].written);
        OK(cuGraphDestroy(g));
    }
    drop_machine();
}

static void nothing(void *arg)
{
    (void)arg;
}

static void a_condition_is_of_its_graph_and_a_body_of_its_node(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUgraph g, other, body;
    CUstream s;
    CUfunction f = kernel("pumice-kernel name=k ns=1000000\n", "k");
    void *node;
    OK(cuStreamCreate(&s, 1));
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphCreate(&other, 0));
    Params c = conditional(g, WHILE, 1, 1), wrong = c;
    body = c.condition.bodies[0];
    EQUAL(cuGraphAddNode(&node, other, NULL, 0, &wrong), 1);
    wrong.condition.size = 2;
    EQUAL(cuGraphAddNode(&node, g, NULL, 0, &wrong), 1);
    EQUAL(cuGraphAddNode(&node, body, NULL, 0, &(Params){.type = HOST, .host = {nothing, NULL}}), 801);
    EQUAL(cuGraphDestroy(body), 1);
    EQUAL(cuGraphClone(&other, g), 801);
    EQUAL(cuGraphAddChildGraphNode(&node, other, NULL, 0, g), 801);
    OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, 0));
    OK(run(f, s));
    OK(cuStreamEndCapture(s, &body));
    CHECK(body == c.condition.bodies[0]);
    CUgraphExec e;
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    uint64_t start = pumice_machine_now_ns();
    OK(cuGraphLaunch(e, s));
    OK(cuStreamSynchronize(s));
    EQUAL(pumice_machine_now_ns() - start, 1000000); /* nobody could end the loop: once */
    drop_machine();
}

static void a_graph_that_is_moved_into_a_node_is_the_nodes(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUgraph g, child;
    void *node;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphCreate(&child, 0));
    conditional(child, IF, 1, 1); /* which a clone could not have */
    OK(cuGraphAddNode(&node, g, NULL, 0, &(Params){.type = CHILD, .child = {child, MOVE}}));
    EQUAL(cuGraphAddNode(&node, g, NULL, 0, &(Params){.type = CHILD, .child = {child, MOVE}}), 1);
    EQUAL(cuGraphDestroy(child), 1);
    OK(cuGraphDestroy(g));
    EQUAL(cuGraphDestroy(child), 1);
    drop_machine();
}

static void a_clone_has_the_originals_edges_and_a_destroyed_node_none(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUgraph g, clone;
    void *root, *left, *right, *from[4], *to[4];
    size_t edges = 4;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddEmptyNode(&root, g, NULL, 0));
    OK(cuGraphAddEmptyNode(&left, g, &root, 1));
    OK(cuGraphAddEmptyNode(&right, g, &root, 1));
    OK(cuGraphClone(&clone, g));
    OK(cuGraphGetEdges(clone, from, to, &edges));
    EQUAL(edges, 2);
    CHECK(from[0] == from[1] && from[0] != root && to[0] != to[1]);
    OK(cuGraphDestroyNode(root));
    OK(cuGraphGetEdges(g, NULL, NULL, &edges));
    EQUAL(edges, 0);
    drop_machine();
}

static void a_graph_is_printed_for_graphviz(void)
{
    fresh_machine("virtual=1");
    begin(0);
    char path[] = "/tmp/pumice-dot-XXXXXX", text[4096] = {0};
    int file = mkstemp(path);
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    Params c = conditional(g, IF, 1, 1);
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 4));
    writes(c.condition.bodies[0], p, 1);
    OK(cuGraphDebugDotPrint(g, path, 0));
    CHECK(read(file, text, sizeof text - 1) > 0);
    CHECK(strstr(text, "digraph") && strstr(text, "CONDITIONAL") && strstr(text, "MEMSET"));
    EQUAL(cuGraphDebugDotPrint(g, "/nowhere/at/all", 0), 304);
    unlink(path);
    drop_machine();
}

int main(void)
{
    apart(the_body_that_fits_what_a_condition_begins_with_runs);
    apart(a_condition_is_of_its_graph_and_a_body_of_its_node);
    apart(a_graph_that_is_moved_into_a_node_is_the_nodes);
    apart(a_clone_has_the_originals_edges_and_a_destroyed_node_none);
    apart(a_graph_is_printed_for_graphviz);
    return 0;
}
