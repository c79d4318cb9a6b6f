/* Clocks, power, temperature, modes and counters of a card. */
#include "nvml.h"

#include <string.h>

/* Share of the last second that the card was busy, 0..100: heat and power follow it. */
static uint64_t load_of(unsigned card)
{
    card_lock(card);
    uint64_t now = machine_now();
    lane_advance(card, 0, now);
    const struct machine_lane *l = &card_at(card)->lanes[0];
    uint64_t percent = nvml_busy_percent(l->bucket_busy_ns, l->bucket_epoch, now);
    card_unlock(card);
    return percent;
}

#define GET(name, type, supported, expression) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, type *out) \
    { \
        WHOLE_CARD(name, device); \
        NEED(out); \
        if (!(supported)) \
            return NVML_ERROR_NOT_SUPPORTED; \
        *out = (expression); \
        return NVML_SUCCESS; \
    }

/* ---- power and heat ---- */

static unsigned power_of(const struct machine_card *c, unsigned card)
{
    uint32_t limit = RELAXED(&c->power_limit_mw);
    uint64_t span = limit > c->power_idle_mw ? limit - c->power_idle_mw : 0;
    return c->power_idle_mw + (unsigned)(span * load_of(card) / 100);
}

GET(nvmlDeviceGetPowerUsage, unsigned, c->power_max_mw, power_of(c, t.card))
GET(nvmlDeviceGetPowerManagementLimit, unsigned, c->power_max_mw, RELAXED(&c->power_limit_mw))
GET(nvmlDeviceGetEnforcedPowerLimit, unsigned, c->power_max_mw, RELAXED(&c->power_limit_mw))
GET(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, c->power_max_mw, c->power_max_mw)
GET(nvmlDeviceGetPowerManagementMode, unsigned, 1, c->power_max_mw != 0)
GET(nvmlDeviceGetPowerState, unsigned, 1, load_of(t.card) ? 0 : 8)
GET(nvmlDeviceGetPerformanceState, unsigned, 1, load_of(t.card) ? 0 : 8)
GET(nvmlDeviceGetFanSpeed, unsigned, c->fan_percent != MACHINE_NONE, c->fan_percent)
GET(nvmlDeviceGetNumFans, unsigned, 1, c->fan_percent != MACHINE_NONE)

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules)
{
    WHOLE_CARD(nvmlDeviceGetTotalEnergyConsumption, device);
    NEED(millijoules);
    load_of(t.card);
    *millijoules = c->power_idle_mw * (machine_now() / 1000000) / 1000 +
                   (uint64_t)(c->power_max_mw - c->power_idle_mw) * (RELAXED(&c->lanes[0].busy_ns) / 1000000) / 1000;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
    WHOLE_CARD(nvmlDeviceGetPowerManagementLimitConstraints, device);
    NEED(least && most);
    *least = c->power_max_mw / 4;
    *most = c->power_max_mw;
    return NVML_SUCCESS;
}

static nvmlReturn_t limit_power(struct machine_card *c, unsigned limit)
{
    nvmlReturn_t rc = nvml_may_change();
    if (rc)
        return rc;
    NEED(limit >= c->power_max_mw / 4 && limit <= c->power_max_mw);
    SET(&c->power_limit_mw, limit);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit)
{
    WHOLE_CARD(nvmlDeviceSetPowerManagementLimit, device);
    return limit_power(c, limit);
}

struct power_value { unsigned version; unsigned char scope; unsigned mw; };

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, const struct power_value *limit)
{
    WHOLE_CARD(nvmlDeviceSetPowerManagementLimit_v2, device);
    NEED(limit && limit->scope <= 2);
    if (limit->version != NVML_VERSION(struct power_value, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return limit->scope == 0 ? limit_power(c, limit->mw) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
    WHOLE_CARD(nvmlDeviceGetFanSpeed_v2, device);
    NEED(speed);
    if (c->fan_percent == MACHINE_NONE)
        return NVML_ERROR_NOT_SUPPORTED;
    NEED(fan == 0);
    *speed = c->fan_percent;
    return NVML_SUCCESS;
}

static unsigned temperature_of(const struct machine_card *c, unsigned card)
{
    return RELAXED(&c->temperature_c) + (unsigned)(load_of(card) * 35 / 100);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
    WHOLE_CARD(nvmlDeviceGetTemperature, device);
    NEED(celsius && sensor == 0);
    *celsius = temperature_of(c, t.card);
    return NVML_SUCCESS;
}

struct temperature { unsigned version, sensor; int celsius; };

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *out)
{
    WHOLE_CARD(nvmlDeviceGetTemperatureV, device);
    NEED(out && out->sensor == 0);
    if (out->version != NVML_VERSION(struct temperature, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->celsius = (int)temperature_of(c, t.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int which, unsigned int *celsius)
{
    WHOLE_CARD(nvmlDeviceGetTemperatureThreshold, device);
    static const unsigned thresholds[] = {95, 92, 95, 85}; /* shutdown, slowdown, memory, GPU maximum */
    NEED(celsius && which < 8);
    if (which >= 4)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = thresholds[which];
    return NVML_SUCCESS;
}

/* ---- clocks: 0 graphics, 1 SM, 2 memory, 3 video ---- */

static unsigned clock_of(const struct machine_card *c, unsigned type, bool most)
{
    if (type == 2)
        return most ? c->clock_mem_max_mhz : c->clock_mem_mhz;
    return most ? c->clock_sm_max_mhz : c->clock_sm_mhz;
}

#define CLOCK(name, most) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int type, unsigned int *mhz) \
    { \
        WHOLE_CARD(name, device); \
        NEED(mhz && type < 4); \
        *mhz = clock_of(c, type, most); \
        return NVML_SUCCESS; \
    }
CLOCK(nvmlDeviceGetClockInfo, false)
CLOCK(nvmlDeviceGetMaxClockInfo, true)
CLOCK(nvmlDeviceGetApplicationsClock, false)
CLOCK(nvmlDeviceGetDefaultApplicationsClock, false)
CLOCK(nvmlDeviceGetMaxCustomerBoostClock, true)

EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id, unsigned int *mhz)
{
    WHOLE_CARD(nvmlDeviceGetClock, device);
    NEED(mhz && type < 4 && id < 4);
    *mhz = clock_of(c, type, id == 3);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *mhz)
{
    WHOLE_CARD(nvmlDeviceGetSupportedMemoryClocks, device);
    NEED(count);
    bool room = mhz && *count >= 1;
    *count = 1;
    if (room)
        mhz[0] = c->clock_mem_max_mhz;
    return room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory, unsigned int *count, unsigned int *mhz)
{
    WHOLE_CARD(nvmlDeviceGetSupportedGraphicsClocks, device);
    NEED(count);
    if (memory != c->clock_mem_max_mhz)
        return NVML_ERROR_NOT_FOUND;
    bool room = mhz && *count >= 1;
    *count = 1;
    if (room)
        mhz[0] = c->clock_sm_max_mhz;
    return room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define REASONS(name, value) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned long long *reasons) \
    { \
        WHOLE_CARD(name, device); \
        NEED(reasons); \
        *reasons = value; \
        return NVML_SUCCESS; \
    }
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons, load_of(t.card) ? 0 : 1)
REASONS(nvmlDeviceGetCurrentClocksEventReasons, load_of(t.card) ? 0 : 1)
REASONS(nvmlDeviceGetSupportedClocksThrottleReasons, 0x1ff)
REASONS(nvmlDeviceGetSupportedClocksEventReasons, 0x1ff)

/* ---- modes ---- */

GET(nvmlDeviceGetPersistenceMode, unsigned, 1, RELAXED(&c->persistence))
GET(nvmlDeviceGetComputeMode, unsigned, 1, RELAXED(&c->compute_mode))
GET(nvmlDeviceGetDisplayMode, unsigned, 1, 0)
GET(nvmlDeviceGetDisplayActive, unsigned, 1, 0)
GET(nvmlDeviceGetVirtualizationMode, unsigned, 1, 0)
GET(nvmlDeviceGetDefaultEccMode, unsigned, c->ecc_capable, 1)

#define SETTER(name, field, most) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int value) \
    { \
        WHOLE_CARD(name, device); \
        NEED(value <= (most)); \
        nvmlReturn_t rc = nvml_may_change(); \
        if (rc == NVML_SUCCESS) \
            SET(&c->field, value); \
        return rc; \
    }
SETTER(nvmlDeviceSetPersistenceMode, persistence, 1)
SETTER(nvmlDeviceSetComputeMode, compute_mode, 3)

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    WHOLE_CARD(nvmlDeviceGetEccMode, device);
    NEED(current && pending);
    if (!c->ecc_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = RELAXED(&c->ecc_mode);
    return NVML_SUCCESS;
}

static nvmlReturn_t ecc_errors(const struct machine_card *c, unsigned type, unsigned long long *count)
{
    if (!c->ecc_capable || !RELAXED(&c->ecc_mode))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = type == 0 ? RELAXED(&c->ecc_corrected) : RELAXED(&c->ecc_uncorrected);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter, unsigned long long *count)
{
    WHOLE_CARD(nvmlDeviceGetTotalEccErrors, device);
    NEED(count && type < 2 && counter < 2);
    return ecc_errors(c, type, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                                    unsigned int location, unsigned long long *count)
{
    WHOLE_CARD(nvmlDeviceGetMemoryErrorCounter, device);
    NEED(count && type < 2 && counter < 2 && location < 8);
    *count = 0;
    return location == 2 ? ecc_errors(c, type, count) : c->ecc_capable ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy, unsigned long long out[2])
{
    WHOLE_CARD(nvmlDeviceGetViolationStatus, device);
    NEED(out && policy < 12);
    out[0] = machine_now() / 1000;
    out[1] = 0;
    return NVML_SUCCESS;
}

/* ---- fields by number; what we do not keep is not supported, one by one ---- */

static nvmlReturn_t field(struct target t, unsigned id, nvmlFieldValue_t *f)
{
    const struct machine_card *c = card_at(t.card);
    f->valueType = 3;
    switch (id) {
    case 1: case 2: f->value.ullVal = RELAXED(&c->ecc_mode); return c->ecc_capable ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case 3: case 5: f->value.ullVal = RELAXED(&c->ecc_corrected); return NVML_SUCCESS;
    case 4: case 6: f->value.ullVal = RELAXED(&c->ecc_uncorrected); return NVML_SUCCESS;
    case 82: f->valueType = 1; f->value.uiVal = temperature_of(c, t.card); return NVML_SUCCESS;
    case 83: f->value.ullVal = (uint64_t)c->power_idle_mw * (machine_now() / 1000000) / 1000; return NVML_SUCCESS;
    case 91: f->valueType = 1; f->value.uiVal = c->link_count; return NVML_SUCCESS;
    case 186: f->valueType = 1; f->value.uiVal = power_of(c, t.card); return NVML_SUCCESS;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    DEVICE(nvmlDeviceGetFieldValues, device);
    NEED(count > 0 && values);
    for (int i = 0; i < count; i++) {
        memset(&values[i].value, 0, sizeof values[i].value);
        values[i].timestamp = (long long)(machine_now() / 1000);
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = t.gi >= 0 ? NVML_ERROR_NOT_SUPPORTED : field(t, values[i].fieldId, &values[i]);
    }
    return NVML_SUCCESS;
}
