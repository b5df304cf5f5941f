// The parts of the host executor. Host code.
#pragma once

#include "kernels/executor.h"
#include "kernels/index_tasks.h"
#include "kernels/random_tasks.h"

namespace gpushim::kernels::host {

void run_program(const Program& program);
void run_scan(const Scan& scan);
void run_arg_reduce(const ArgReduce& reduce);
void run_matmul(const MatMul& matmul);
void run_gufunc(const GufuncCall& call);
void run_indexed(const Indexed& work);
void run_fold_at(const FoldAt& work);
void run_mask_count(const MaskCount& work);
void run_mask_select(const MaskSelect& work);
void run_draw(const Draw& draw);  // random_tasks.cpp
void run_draw_integers(const DrawIntegers& draw);

/// ORs FpFlag bits into the status word; an address of 0 means that nobody asked.
void report_events(gpu::DevicePtr word, std::uint32_t events) noexcept;

}  // namespace gpushim::kernels::host
