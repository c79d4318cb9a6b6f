# libvgpu.so. Included by ../Makefile, which names BUILD; everything of ours lands in $(BUILD)/vgpu.
BUILD ?= build
VGPU_DIR := vgpu
VGPU_OUT := $(BUILD)/vgpu
VGPU_LIB := $(VGPU_OUT)/libvgpu.so

VGPU_SRC := $(wildcard $(VGPU_DIR)/src/*/*.c)
VGPU_OBJ := $(VGPU_SRC:$(VGPU_DIR)/src/%.c=$(VGPU_OUT)/obj/%.o)
VGPU_CPPFLAGS := -D_GNU_SOURCE -I$(VGPU_DIR)/include -I$(VGPU_DIR)/src
VGPU_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Wmissing-prototypes -Werror -fvisibility=hidden -fPIC -fno-semantic-interposition -ftls-model=initial-exec $(PLACELESS)

# What looks up symbols may run before a sanitizer's runtime is ready for it.
VGPU_EARLY := symbols loader lookup real

# What the unit tests link: the library's own objects of everything that includes no CUDA header.
VGPU_POLICY_OBJ := $(filter $(VGPU_OUT)/obj/core/% $(VGPU_OUT)/obj/policy/% $(VGPU_OUT)/obj/book/%,$(VGPU_OBJ))
VGPU_UNIT := $(patsubst $(VGPU_DIR)/tests/%.c,%,$(wildcard $(VGPU_DIR)/tests/test_*.c))
VGPU_PROGRAMS := $(patsubst $(VGPU_DIR)/tests/programs/%.c,$(VGPU_OUT)/programs/%,\
  $(filter-out %/interposer.c,$(wildcard $(VGPU_DIR)/tests/programs/*.c))) $(VGPU_OUT)/programs/interposer.so $(VGPU_OUT)/programs/halves.so

$(VGPU_OUT)/obj/%.o: $(VGPU_DIR)/src/%.c $(VGPU_DIR)/rules.mk $(VGPU_DIR)/hooks.def $(VGPU_DIR)/options.def $(VGPU_DIR)/src/driver/needs.def
	@mkdir -p $(@D)
	@echo CC $< && $(CC) $(VGPU_CFLAGS) $(if $(filter $(VGPU_EARLY),$(*F)),,$(SANITIZE)) $(VGPU_CPPFLAGS) -include include/old_glibc.h -MMD -MP -c $< -o $@

$(VGPU_OUT)/exports.map: $(VGPU_DIR)/exports.map.in $(VGPU_DIR)/hooks.def
	@mkdir -p $(@D)
	@$(CC) -E -P -x c -I$(VGPU_DIR) $< -o $@

# A file that a process has mapped is never written into: the new one takes its name.
$(VGPU_LIB): $(VGPU_OBJ) $(VGPU_OUT)/exports.map
	@echo LD $@ && $(CC) -shared -Wl,--version-script=$(VGPU_OUT)/exports.map $(if $(SANITIZE),$(SANITIZE),-Wl,-z,defs) -Wl,-z,now -Wl,-z,nodelete -Wl,-soname,libvgpu.so $(VGPU_OBJ) -o $@.new \
	  -Wl,--push-state,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0 -Wl,--pop-state
	@mv -f $@.new $@

$(VGPU_OUT)/programs/%: $(VGPU_DIR)/tests/programs/%.c $(VGPU_DIR)/tests/check.h $(VGPU_DIR)/hooks.def
	@mkdir -p $(@D)
	@echo CC $< && $(CC) $(VGPU_CFLAGS) $(VGPU_CPPFLAGS) -I$(VGPU_DIR)/tests -I$(VGPU_DIR) -I$(M)/include -Wno-format-truncation $< -o $@ -ldl -lpthread -lm

$(VGPU_OUT)/tests/%: $(VGPU_DIR)/tests/%.c $(wildcard $(VGPU_DIR)/tests/*.h) $(VGPU_POLICY_OBJ) $(wildcard $(VGPU_DIR)/src/*/*.h) $(VGPU_DIR)/include/vgpu/region.h
	@mkdir -p $(@D)
	@echo CC $< && $(CC) $(VGPU_CFLAGS) $(SANITIZE) $(VGPU_CPPFLAGS) -I$(VGPU_DIR)/tests $< $(VGPU_POLICY_OBJ) -o $@ -lpthread -lm

$(VGPU_OUT)/programs/direct: $(VGPU_DIR)/tests/programs/direct.c | $(BUILD)/machine/libcuda.so.1 $(BUILD)/machine/libnvidia-ml.so.1
	@mkdir -p $(@D)
	@echo CC $< && $(CC) $(VGPU_CFLAGS) $< -o $@ $(BUILD)/machine/libcuda.so.1 $(BUILD)/machine/libnvidia-ml.so.1

# Linked against the driver by name; what an older one lacks stays weak.
$(VGPU_OUT)/programs/linked: $(VGPU_DIR)/tests/programs/linked.c $(VGPU_DIR)/hooks.def | $(BUILD)/machine/libcuda.so.1 $(BUILD)/machine/libnvidia-ml.so.1
	@mkdir -p $(@D)
	@echo CC $< && $(CC) $(VGPU_CFLAGS) -D_GNU_SOURCE -I$(VGPU_DIR) -Wno-pedantic $< -o $@ -Wl,--no-as-needed $(BUILD)/machine/libcuda.so.1 $(BUILD)/machine/libnvidia-ml.so.1 -ldl

# A driver that hands out other addresses by cuGetProcAddress than it exports: each exported name is a jump to the function itself.
$(VGPU_OUT)/jumping/libcuda.so.1: $(M_CORE) $(M_CUDA) $(M_SYMBOLS) $(VGPU_DIR)/rules.mk
	@mkdir -p $(@D)/obj
	@awk -F'[(), ]+' '/^(SYMBOL|UNSERVED)/ { print $$5 " inner_" $$5 }' $(M_SYMBOLS) | sort -u > $(@D)/names
	@for o in $(M_CUDA); do objcopy --redefine-syms=$(@D)/names $$o $(@D)/obj/$$(basename $$o); done
	@{ echo '#ifdef __aarch64__' ; echo '#define JUMP "b "' ; echo '#else' ; echo '#define JUMP "jmp "' ; echo '#endif' ; \
	  awk '{ print "__asm__(\".globl " $$1 "\\n.type " $$1 ",%function\\n" $$1 ":\\n\" JUMP \"" $$2 "\\n.size " $$1 ", .-" $$1 "\\n\");" }' $(@D)/names; } > $(@D)/jumps.c
	@echo LD $@ && $(CC) $(CFLAGS_BASE) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o $@ $(@D)/jumps.c $(@D)/obj/*.o $(M_CORE) -lpthread -ldl

# The library with another list of back ends in place of its own.
$(VGPU_OUT)/programs/halves.so: $(VGPU_DIR)/tests/backends/halves.c $(VGPU_OBJ) $(VGPU_OUT)/exports.map
	@mkdir -p $(@D)
	@echo LD $@ && $(CC) $(VGPU_CFLAGS) $(VGPU_CPPFLAGS) -shared -Wl,--version-script=$(VGPU_OUT)/exports.map -Wl,-soname,libvgpu.so $< \
	  $(filter-out %/services/backends.o,$(VGPU_OBJ)) -o $@ -ldl -lpthread

$(VGPU_OUT)/programs/interposer.so: $(VGPU_DIR)/tests/programs/interposer.c
	@mkdir -p $(@D)
	@echo LD $@ && $(CC) $(filter-out -Wmissing-prototypes,$(VGPU_CFLAGS)) -shared $< -o $@

.PHONY: vgpu vgpu-test vgpu-programs vgpu-install
vgpu: $(VGPU_LIB)
vgpu-programs: $(VGPU_PROGRAMS) $(VGPU_OUT)/jumping/libcuda.so.1
# Under a sanitizer these are the same tests: the policy links without the driver's half.
vgpu-test: $(VGPU_UNIT:%=$(VGPU_OUT)/tests/%)
	@set -e; for t in $^; do LIBCUDA_LOG_LEVEL=0 timeout 300 $$t; done
# Under a sanitizer the whole library runs too: eight threads on a small machine, its own runtime preloaded before ours.
ifneq ($(SANITIZE),)
.PHONY: vgpu-whole
VGPU_WHOLE := $(abspath $(VGPU_OUT))/whole
vgpu-whole: $(VGPU_LIB) $(VGPU_OUT)/programs/threads $(M_LIBS) $(BUILD)/machine/tests/create
	@rm -rf $(VGPU_WHOLE) && $(BUILD)/machine/tests/create $(VGPU_WHOLE)
	@PUMICE_MACHINE=$(VGPU_WHOLE) LD_LIBRARY_PATH=$(abspath $(BUILD)/machine) ASAN_OPTIONS=detect_leaks=0 LIBCUDA_LOG_LEVEL=0 \
	  CUDA_DEVICE_MEMORY_SHARED_CACHE=$(VGPU_WHOLE)/r.cache CUDA_DEVICE_MEMORY_LIMIT=2g CUDA_DEVICE_SM_LIMIT=90 \
	  LD_PRELOAD="$(shell $(CC) -print-file-name=lib$(SANITIZER).so) $(abspath $(VGPU_LIB))" \
	  timeout 300 $(VGPU_OUT)/programs/threads 2147483648
	@echo "ok   the whole library under $(SANITIZER)"
TESTS += vgpu-whole
endif
vgpu-install: $(VGPU_LIB)
	@mkdir -p $(PREFIX)/vgpu
	@install -m 755 $(VGPU_LIB) $(PREFIX)/vgpu/libvgpu.so.new
	@mv -f $(PREFIX)/vgpu/libvgpu.so.new $(PREFIX)/vgpu/libvgpu.so

# The long counts: processes killed at 10,000 random moments, 10^8 made-up inputs, ten million grants. About 4 minutes.
.PHONY: vgpu-soak
VGPU_SOAK := $(abspath $(VGPU_OUT))/soak
VGPU_KILLS ?= 10000
VGPU_INPUTS ?= 100000000
VGPU_GRANTED ?= 10000000
vgpu-soak: $(VGPU_LIB) $(VGPU_OUT)/programs/chaos $(VGPU_OUT)/tests/test_fuzz $(VGPU_OUT)/tests/test_memory $(M_LIBS) $(BUILD)/machine/tests/create
	VGPU_GRANTS=$(VGPU_GRANTED) VGPU_LARGEST=2000000 LIBCUDA_LOG_LEVEL=0 timeout 1800 $(VGPU_OUT)/tests/test_memory
	VGPU_FUZZ=$(VGPU_INPUTS) timeout 1800 $(VGPU_OUT)/tests/test_fuzz
	@rm -rf $(VGPU_SOAK) && $(BUILD)/machine/tests/create $(VGPU_SOAK)
	PUMICE_MACHINE=$(VGPU_SOAK) LD_LIBRARY_PATH=$(abspath $(BUILD)/machine) LD_PRELOAD=$(abspath $(VGPU_LIB)) LIBCUDA_LOG_LEVEL=0 \
	  CUDA_DEVICE_MEMORY_LIMIT=1g CUDA_DEVICE_MEMORY_SHARED_CACHE=$(VGPU_SOAK)/r.cache \
	  timeout 3000 $(VGPU_OUT)/programs/chaos 0 4 $(VGPU_KILLS)
SOAK += vgpu-soak

ALL += $(VGPU_LIB)
INSTALL += vgpu-install
TESTS += vgpu-test

-include $(VGPU_OBJ:.o=.d)
