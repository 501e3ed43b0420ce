"""The waist of rankscope: what readers give, what questions ask, what reports show."""
