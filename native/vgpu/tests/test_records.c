/* The table of what a process holds, against a plain array. */
#include "book/records.h"
#include "core/after_fork.h"
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEYS = 4096, OPERATIONS = 400000 };

static struct record model[KEYS];

static uint64_t key_of(unsigned i)
{
    return 0x7f0000000000ull + (uint64_t)i * 512;
}

static void random_operations_agree_with_an_array(void)
{
    unsigned seed = 5;
    uint64_t live = 0;
    for (int n = 0; n < OPERATIONS; n++) {
        unsigned i = (unsigned)rand_r(&seed) % KEYS;
        struct record found = {0};
        switch (rand_r(&seed) % 3) {
        case 0:
            live += model[i].kind == RECORD_NONE;
            model[i] = (struct record){.key = key_of(i), .bytes = (uint64_t)n + 1, .kind = RECORD_LINEAR, .references = 1};
            CHECK(records_insert(&model[i]));
            break;
        case 1:
            CHECK_EQUAL(records_remove(RECORD_LINEAR, key_of(i), &found), model[i].kind != RECORD_NONE);
            CHECK_EQUAL(found.bytes, model[i].bytes);
            live -= model[i].kind != RECORD_NONE;
            model[i] = (struct record){0};
            break;
        default:
            CHECK_EQUAL(records_find(RECORD_LINEAR, key_of(i), &found), model[i].kind != RECORD_NONE);
            CHECK_EQUAL(found.bytes, model[i].bytes);
        }
    }
    CHECK_EQUAL(records_live(), live);
    struct record gone;
    for (unsigned i = 0; i < KEYS; i++)
        records_remove(RECORD_LINEAR, key_of(i), &gone);
    CHECK_EQUAL(records_live(), 0);
}

static void one_number_may_be_a_pointer_and_a_handle(void)
{
    struct record pointer = {.key = 64, .bytes = 1, .kind = RECORD_LINEAR}, handle = {.key = 64, .bytes = 2, .kind = RECORD_HANDLE};
    struct record found;
    CHECK(records_insert(&pointer) && records_insert(&handle));
    CHECK(records_remove(RECORD_LINEAR, 64, &found) && found.bytes == 1);
    CHECK(records_remove(RECORD_HANDLE, 64, &found) && found.bytes == 2);
}

static void bytes_are_added_to_what_is_there_and_no_more_are_taken_than_that(void)
{
    struct record heap = {.key = 9, .bytes = 5, .kind = RECORD_LIMITS}, found;
    CHECK(records_add(&heap) && records_add(&heap));
    CHECK_EQUAL(records_take(RECORD_LIMITS, 9, 4), 4);
    CHECK(records_find(RECORD_LIMITS, 9, &found) && found.bytes == 6);
    CHECK_EQUAL(records_take(RECORD_LIMITS, 9, 7), 6);
    CHECK_EQUAL(records_take(RECORD_LIMITS, 9, 1), 0);
    CHECK(records_remove(RECORD_LIMITS, 9, &found));
    CHECK_EQUAL(records_take(RECORD_LIMITS, 9, 1), 0);
}

static void a_handle_ends_when_it_is_neither_referred_to_nor_mapped(void)
{
    struct record handle = {.key = 7, .bytes = 2, .kind = RECORD_HANDLE, .references = 1}, ended;
    CHECK(records_insert(&handle));
    CHECK(!records_count(RECORD_HANDLE, 7, 0, 1, &ended));
    CHECK(!records_count(RECORD_HANDLE, 7, -1, 0, &ended)); /* released while mapped: the memory is still there */
    CHECK(records_count(RECORD_HANDLE, 7, 0, -1, &ended) && ended.bytes == 2);
    CHECK(!records_count(RECORD_HANDLE, 7, 0, -1, &ended));
}

static uint64_t dropped;

static void count_dropped(const struct record *record)
{
    dropped += record->bytes;
}

static void a_context_takes_its_allocations_with_it(void)
{
    struct record found;
    for (uint64_t i = 0; i < 10000; i++) {
        struct record record = {.key = 4096 + i * 16, .bytes = 1, .owner = 1 + i % 2, .kind = RECORD_LINEAR};
        CHECK(records_insert(&record));
    }
    records_drop_owner(1, count_dropped);
    CHECK_EQUAL(dropped, 5000);
    CHECK_EQUAL(records_live(), 5000);
    CHECK(!records_find(RECORD_LINEAR, 4096, &found) && records_find(RECORD_LINEAR, 4096 + 16, &found));
    records_drop_owner(2, count_dropped);
    CHECK_EQUAL(records_live(), 0);
}

static void *churn(void *data)
{
    uint64_t base = (uint64_t)(uintptr_t)data << 32;
    struct record gone;
    for (uint64_t round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < 1000; i++) {
            struct record record = {.key = base + i * 512, .bytes = i, .kind = RECORD_LINEAR};
            CHECK(records_insert(&record));
        }
        for (uint64_t i = 0; i < 1000; i++)
            CHECK(records_remove(RECORD_LINEAR, base + i * 512, &gone) && gone.bytes == i);
    }
    return NULL;
}

static void threads_do_not_lose_each_others_records(void)
{
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQUAL(records_live(), 0);
}

static void a_million_records_fit(void)
{
    struct record found;
    for (uint64_t i = 0; i < 1000000; i++) {
        struct record record = {.key = (i + 1) * 256, .bytes = i, .kind = RECORD_LINEAR};
        CHECK(records_insert(&record));
    }
    CHECK_EQUAL(records_live(), 1000000);
    CHECK(records_find(RECORD_LINEAR, 256 * 777777, &found) && found.bytes == 777776);
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        forget_in_child();
        _exit(records_live() != 0); /* a child starts empty */
    }
    waitpid(child, &status, 0);
    CHECK_EQUAL(status, 0);
}

int main(void)
{
    random_operations_agree_with_an_array();
    one_number_may_be_a_pointer_and_a_handle();
    bytes_are_added_to_what_is_there_and_no_more_are_taken_than_that();
    a_handle_ends_when_it_is_neither_referred_to_nor_mapped();
    a_context_takes_its_allocations_with_it();
    threads_do_not_lose_each_others_records();
    a_million_records_fit();
    return check_result("records");
}
