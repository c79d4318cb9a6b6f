# The emulated machine: libnvidia-ml.so.1 and libcuda.so.1 over one shared state. Included by ../../native/Makefile, in whose folder it runs.

M := ../lab/native
MB := $(BUILD)/machine
M_CFLAGS := $(CFLAGS_BASE) -include include/old_glibc.h -I$(M)/include -I$(M)/src/core -Wno-missing-field-initializers -MMD -MP
# By their files' names, so that they are asked for also where the linker finds everything in libc.
M_PTHREAD := -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -Wl,--pop-state
M_DL := -Wl,--push-state,--no-as-needed -l:libdl.so.2 -Wl,--pop-state
M_LDFLAGS := -shared -Wl,-Bsymbolic -Wl,-z,defs -Wl,-z,nodelete $(SANITIZE)

M_CORE := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/core/*.c))
M_CUDA := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/cuda/*.c))
M_NVML := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/nvml/*.c))

# The rooms of the two libraries define the entries of somebody else's headers, which are not here; of what they share inside
# tests/native/test_source_rooms.py asks for prototypes.
M_STRICT_core := -Wmissing-prototypes
$(MB)/objects/%.o: $(M)/src/%.c
	@mkdir -p $(@D)
	@echo CC $< && $(CC) $(M_CFLAGS) $(M_STRICT_$(notdir $(<D))) -I$(<D) -c $< -o $@

$(MB)/libcuda.so.1: $(M_CORE) $(M_CUDA)
	@echo LD $@ && $(CC) $(M_LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $^ $(M_PTHREAD) -ldl

$(MB)/libnvidia-ml.so.1: $(M_CORE) $(M_NVML)
	@echo LD $@ && $(CC) $(M_LDFLAGS) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^ $(M_PTHREAD)

# NPUs: two libraries over a state of their own (include/machine/npu.h).
M_NPU := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/npu/*.c))
M_DCMI := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/dcmi/*.c))
M_ACL := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/ascendcl/*.c))
M_STRICT_npu := -Wmissing-prototypes
$(M_NPU) $(M_DCMI) $(M_ACL): M_CFLAGS += -I$(M)/src/npu

$(MB)/libdcmi.so: $(M_NPU) $(M_DCMI)
	@echo LD $@ && $(CC) $(M_LDFLAGS) -Wl,-soname,libdcmi.so -o $@ $^ $(M_PTHREAD)

$(MB)/libascendcl.so: $(M_NPU) $(M_ACL)
	@echo LD $@ && $(CC) $(M_LDFLAGS) -Wl,-soname,libascendcl.so -o $@ $^ $(M_PTHREAD)

# MPS: a program of NVIDIA's name. It knows nothing of the machine; its clients do (src/cuda/mps.c).
M_MPS := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/mps/*.c))
M_STRICT_mps := -Wmissing-prototypes
$(MB)/nvidia-cuda-mps-control: $(M_MPS)
	@echo LD $@ && $(CC) $(SANITIZE) -Wl,--wrap=__libc_start_main -o $@ $^

# Older drivers: the same code, without the names that came later, so that dlsym does not find them either.
M_GENERATIONS := 11080 12090 13000
M_SYMBOLS := $(M)/src/cuda/symbols.def
$(MB)/driver-%/exports.map: $(M_SYMBOLS)
	@mkdir -p $(@D)
	@awk -F'[(), ]+' -v most=$* 'BEGIN { print "{ global: pumice_machine_*;" } /^(SYMBOL|UNSERVED)/ && $$3 <= most { print "  " $$5 ";" } \
	  END { print "local: *; };" }' $< > $@
$(MB)/driver-%/libcuda.so.1: $(MB)/driver-%/exports.map $(M_CORE) $(M_CUDA)
	@echo LD $@ && $(CC) $(M_LDFLAGS) -Wl,-soname,libcuda.so.1 -Wl,--version-script=$< -o $@ $(M_CORE) $(M_CUDA) $(M_PTHREAD) -ldl
.PRECIOUS: $(MB)/driver-%/exports.map
M_OLDER := $(M_GENERATIONS:%=$(MB)/driver-%/libcuda.so.1)

# A CUDA runtime over the driver API, for programs that load libcudart by name: one source for three generations, in a folder of its own.
# What stands behind libcudart.so. begins with the generation.
M_RUNTIME_NAMES := 11.0 12 13
M_RUNTIMES := $(M_RUNTIME_NAMES:%=$(MB)/runtime/libcudart.so.%)
m_generation = $(firstword $(subst ., ,$(1)))
define M_RUNTIME
$(MB)/objects/runtime-$(1)/%.o: $(M)/src/runtime/%.c
	@mkdir -p $$(@D)
	@echo CC $$< for CUDA $(1) && $$(CC) $$(M_CFLAGS) -DRUNTIME=$(call m_generation,$(1)) -c $$< -o $$@
$(MB)/objects/runtime-$(1)/exports.map:
	@mkdir -p $$(@D)
	@echo 'libcudart.so.$(1) { global: cuda*; __cuda*; local: *; };' > $$@
$(MB)/runtime/libcudart.so.$(1): $(MB)/objects/runtime-$(1)/exports.map $(patsubst $(M)/src/runtime/%.c,$(MB)/objects/runtime-$(1)/%.o,$(wildcard $(M)/src/runtime/*.c))
	@mkdir -p $$(@D)
	@echo LD $$@ && $$(CC) $$(M_LDFLAGS) -Wl,-soname,$$(@F) -Wl,--version-script=$$< -o $$@ $$(filter %.o,$$^) $$(M_PTHREAD) $$(M_DL)
endef
$(foreach name,$(M_RUNTIME_NAMES),$(eval $(call M_RUNTIME,$(name))))

# CUPTI, which traces nothing, beside it.
M_CUPTI := $(patsubst $(M)/src/%.c,$(MB)/objects/%.o,$(wildcard $(M)/src/cupti/*.c))
$(MB)/objects/cupti/exports.map:
	@mkdir -p $(@D)
	@echo 'libcupti.so.13 { global: cupti*; local: *; };' > $@
$(MB)/runtime/libcupti.so.13: $(MB)/objects/cupti/exports.map $(M_CUPTI)
	@mkdir -p $(@D)
	@echo LD $@ && $(CC) $(M_LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$< -o $@ $(M_CUPTI)
M_RUNTIMES += $(MB)/runtime/libcupti.so.13

M_LIBS := $(MB)/libcuda.so.1 $(MB)/libnvidia-ml.so.1 $(MB)/libdcmi.so $(MB)/libascendcl.so $(MB)/nvidia-cuda-mps-control
ALL += $(M_OLDER) $(M_RUNTIMES)
ALL += $(M_LIBS)

.PHONY: machine-install
machine-install: $(M_LIBS) $(M_OLDER) $(M_RUNTIMES)
	@mkdir -p $(LAB_PREFIX)/machine/runtime
	@install -m 755 $(M_RUNTIMES) $(LAB_PREFIX)/machine/runtime/
	@install -m 755 $(M_LIBS) $(LAB_PREFIX)/machine/
	@for d in $(M_GENERATIONS:%=driver-%); do mkdir -p $(LAB_PREFIX)/machine/$$d && install -m 755 $(MB)/$$d/libcuda.so.1 $(LAB_PREFIX)/machine/$$d/; done
INSTALL += machine-install

-include $(wildcard $(MB)/objects/runtime-*/*.d) $(M_CORE:.o=.d) $(M_CUDA:.o=.d) $(M_NVML:.o=.d) $(M_MPS:.o=.d) $(M_CUPTI:.o=.d) $(M_NPU:.o=.d) $(M_DCMI:.o=.d) $(M_ACL:.o=.d)

# ---- tests: C programs against their own prototypes, run by a small driver ----

MT := $(MB)/tests
$(MT)/create: $(M)/tests/create.c $(M)/include/machine/state.h
	@mkdir -p $(@D)
	@echo LD $@ && $(CC) $(CFLAGS_BASE) -I$(M)/include -o $@ $<
ALL += $(MT)/create
M_TESTS := test_time test_memory test_kinds_of_memory test_pools test_contexts test_green test_multicast test_graphs test_graph_objects test_graph_conditions test_tensor_maps test_nvml test_npus $(M_RUNTIME_NAMES:%=test_runtime_%)
M_TRIED = $(MB)/libcuda.so.1 $(MB)/libnvidia-ml.so.1
$(MT)/test_npus: M_TRIED = $(MB)/libdcmi.so $(MB)/libascendcl.so
$(MT)/%: $(M)/tests/%.c $(M)/tests/check.h $(M_LIBS) $(MT)/create
	@echo LD $@ && $(CC) $(CFLAGS_BASE) -I$(M)/include -o $@ $< $(M_TRIED) -Wl,-rpath,'$$ORIGIN/..' -lpthread
# The runtime's test by each: the runtime is linked first, the driver beside it for what it looks at.
$(MT)/test_runtime_%: $(M)/tests/test_runtime.c $(M)/tests/check.h $(MB)/runtime/libcudart.so.% $(M_LIBS) $(MT)/create
	@echo LD $@ && $(CC) $(CFLAGS_BASE) -DRUNTIME=$(call m_generation,$*) -I$(M)/include -o $@ $< $(MB)/runtime/libcudart.so.$* $(M_TRIED) -Wl,-rpath,'$$ORIGIN/../runtime:$$ORIGIN/..' -lpthread
$(MT)/create: SANITIZE :=

.PHONY: machine-test machine-soak machine-bench
machine-test: $(M_TESTS:%=$(MT)/%)
	@set -e; for t in $(M_TESTS); do echo "RUN $$t $(SANITIZER)"; timeout 300 $(MT)/$$t; done
machine-soak: $(MT)/test_memory
	timeout 3000 $(MT)/test_memory 10000
machine-bench: $(MT)/bench_launch
	@$(MT)/bench_launch
TESTS += machine-test
SOAK += machine-soak
bench: machine-bench
