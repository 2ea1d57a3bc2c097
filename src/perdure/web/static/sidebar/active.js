// How many jobs will run by themselves, which is told at the way to them.

import * as api from '../api.js';
import { redraw, state } from '../state.js';

// Without the number the way is still there.
export async function countJobs() {
  try {
    const { jobs } = await api.jobs();
    state.jobs = jobs.filter((job) => job.state === 'active').length;
    redraw();
  } catch (failure) {
    if (failure.status === undefined) throw failure;
  }
}
