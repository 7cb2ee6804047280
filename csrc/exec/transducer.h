/* exec/transducer.h: the predictor and the joiner of a transducer, as its search asks for them (decode/scorer.h). */
#pragma once
#include "decode/scorer.h"
#include "exec/engine.h"

/* Fills a scorer from two engines, whose plans it keeps (they outlive it); streams of its own stand beside theirs.
 * Errors: DS_ARGUMENT for models that are no predictor and joiner; DS_NO_MEMORY. */
ds_status ds_transducer_scorer(ds_scorer *scorer, const ds_engine *predictor,
                               const ds_engine *joiner);
