/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every wakeup on a busy machine costs a run of the scheduler process.
 *
 * Symptom: 22 us of CPU time for each wakeup that finds no idle CPU, 45 us at the median until the
 * task runs, and the same again for the task that it interrupts.
 *
 * Cause: the backend queues each task to user space, and nothing happens until the process has run.
 *
 * Fix: standing orders. With a decision user space may order what happens at the next wakeups of
 * the task: for how long it runs, by which key it waits, which tiers it preempts, how often, until
 * when. The backend's enqueue executes the order with the runqueue locked (order_rules.h). A task
 * that was preempted so goes on with the rest of its slice without a message, and a Batch task that
 * used up its slice gets some further ones in its turn. Everything else is queued to user space as
 * before.
 *
 * How to see it: VM scenarios `orders` and `bars`, and the statistics `nr_orders`.
 *
 * Upstream: nothing is reported yet. It would be an option of the backend.
 */
#ifndef __PATCH_ORDERS_H
#define __PATCH_ORDERS_H

#include "../order_rules.h"

/* Each of these uses the ones before it. */
#include "order_slots.h"
#include "order_view.h"
#include "order_search.h"
#include "order_execute.h"
#include "order_pending.h"

#endif
