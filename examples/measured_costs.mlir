// 1F1B with measured costs in milliseconds: the 1.5 B model of the zero-bubble
// paper (Qi et al., ICLR 2024, table 6), which gives its bubble rate as 0.2431
// (table 5). B defaults to input + weight.

pipe.schedule @measured ranks(8) microbatches(24) using(#pipe.one_f_one_b)
    costs(#pipe.cost<forward = 18.522, input = 18.086, weight = 9.337, transfer = 0.601>)
